"""sqlglot's parsers as classes that can be inherited from.

With the package sqlglotc, which dagster-dbt brings along, sqlglot's modules are compiled, and a class of a compiled
module refuses instances of its subclasses. The sources lie beside the compiled files; the parser's are loaded from
there, as modules of our own, and nobody else's use of sqlglot changes.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

_BASE: Final = "sqlglot.parser"


def interpreted_parser(dialect: str) -> ModuleType:
    """The module of a dialect's parser, such that its class may be inherited from.

    Raises:
        ImportError: The module's source is not installed.
    """
    name = f"sqlglot.parsers.{dialect}"
    if not _is_compiled(import_module(name)) and not _is_compiled(import_module(_BASE)):
        return import_module(name)
    with _in_place_of(_BASE, _from_source(_BASE)):
        return _from_source(name)


def _is_compiled(module: ModuleType) -> bool:
    return Path(module.__file__ or "").suffix != ".py"


def _from_source(name: str) -> ModuleType:
    compiled = Path(import_module(name).__file__ or "")
    source = compiled.with_name(compiled.name.split(".", 1)[0] + ".py")
    spec = spec_from_file_location(name, source)
    if spec is None or spec.loader is None or not source.exists():
        raise ImportError(f"{name} is compiled and its source {source.name} is not beside it", name=name)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _in_place_of(name: str, module: ModuleType) -> Generator[None]:
    """Let imports find a module under a name, for a moment."""
    package, _, attribute = name.rpartition(".")
    before = sys.modules[name]
    try:
        sys.modules[name] = module
        setattr(sys.modules[package], attribute, module)
        yield
    finally:
        sys.modules[name] = before
        setattr(sys.modules[package], attribute, before)
