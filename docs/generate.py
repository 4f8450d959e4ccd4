"""Writes the pages of the documentation that the code itself knows.

python docs/generate.py           # write
python docs/generate.py --check   # exit 1 if a page differs from the code
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pgtrickle_assets.differential.reasons import OBSTACLES, RULES
from pgtrickle_assets.project_config import LakeConfig, ProjectConfig, SourceConfig
from pgtrickle_assets.query import aggregate_calls, moments, special_calls
from pgtrickle_assets.query.functions import signatures
from pgtrickle_assets.query.sql_features import SQL_FEATURES
from pgtrickle_assets.settings import settings_reference
from pgtrickle_assets.stream_table import StreamTableOptions

FOLDER: Final = Path(__file__).parent
NOTE: Final = (
    "<!-- Written by docs/generate.py from docs/templates and the code. Change those, then run `make docs`. -->\n"
)

_BLOCK: Final = re.compile(r"\{\{(.+?)\}\}")
_MARKDOWN: Final = re.compile(r"([*_~|])")
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*)$")


def described_fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo, str]]:
    """Name, definition and description of each field; descriptions come from the docstring."""
    descriptions: dict[str, str] = {}
    name = ""
    for line in _attribute_lines(model.__doc__ or ""):
        if match := _ATTRIBUTE.match(line):
            name = match.group(1)
            descriptions[name] = match.group(2)
        elif name and line.strip():
            descriptions[name] += " " + line.strip()
    missing = [field for field in model.model_fields if field not in descriptions]
    if missing:
        raise SystemExit(f"{model.__name__} says nothing about {', '.join(missing)}")
    return [(field, info, descriptions[field]) for field, info in model.model_fields.items()]


def _attribute_lines(docstring: str) -> list[str]:
    _, _, attributes = docstring.partition("Attributes:\n")
    # A docstring's body is indented by four; attributes are one level deeper.
    return [line.removeprefix("    ") for line in attributes.splitlines()]


def _default(info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or value in ((), {}, "", None):
        return ""
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = ", ".join(str(item) for item in value)
    if isinstance(value, dict):
        value = ", ".join(str(item) for item in value)
    return f"`{value}`"


def options_table(model: type[BaseModel]) -> str:
    """A table of the options of one model."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {_default(info)} | {text} |" for name, info, text in described_fields(model)]
    return "\n".join(lines)


def rules_table() -> str:
    """How each operator is maintained."""
    lines = ["| construct | rule | how | source |", "|---|---|---|---|"]
    lines += [f"| {rule.operator} | `{rule.name}` | {rule.text} | {rule.source} |" for rule in RULES]
    return "\n".join(lines)


def obstacles_table() -> str:
    """Why a query is recomputed in full."""
    lines = ["| construct | reason code | why | what you can do |", "|---|---|---|---|"]
    lines += [f"| {item.construct} | `{item.code}` | {item.text} | {item.advice} |" for item in OBSTACLES]
    return "\n".join(lines)


SUPPORT: Final = {"yes": "yes", "limited": "in part", "full_only": "recomputed in full", "no": "refused"}


def features_tables() -> str:
    """What a query may use, a table per area."""
    tables: list[str] = []
    for area in dict.fromkeys(feature.area for feature in SQL_FEATURES):
        lines = [f"### {area}", "", "| construct | example | supported | note |", "|---|---|---|---|"]
        for item in SQL_FEATURES:
            if item.area == area:
                construct, note = (_MARKDOWN.sub(r"\\\1", cell) for cell in (item.construct, item.note))
                example = item.example.replace("|", "\\|")
                lines.append(f"| {construct} | `{example}` | {SUPPORT[item.support]} | {note} |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def functions_list() -> str:
    """Names of the functions by kind."""
    scalar = {name for name in signatures.names() if name.isidentifier()}
    scalar |= {*special_calls.FUNCTIONS, *moments.SYNTAX}
    kinds = {
        "Aggregates": aggregate_calls.AGGREGATES,
        "Window functions, besides the aggregates": aggregate_calls.WINDOW_ONLY,
        "Scalar functions, besides `COALESCE`, `NULLIF`, `GREATEST`, `LEAST`, `CONCAT`, `CASE`": scalar,
    }
    return "\n\n".join(
        f"**{kind}:** " + ", ".join(f"`{name}`" for name in sorted(names)) for kind, names in kinds.items()
    )


def settings_tables() -> str:
    """Every setting, a table per group."""
    rows = settings_reference()
    tables: list[str] = []
    for group in dict.fromkeys(row.group for row in rows):
        lines = [f"## {group}", "", "| variable | type | default | meaning | effect |", "|---|---|---|---|---|"]
        for row in rows:
            if row.group == group:
                default = f"`{row.default}`" + (f" {row.unit}" if row.unit else "") if row.default else ""
                lines.append(f"| `{row.variable}` | {row.type} | {default} | {row.description} | {row.effect} |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


BLOCKS: Final[dict[str, Callable[[], str]]] = {
    f"options {model.__name__}": partial(options_table, model)
    for model in (StreamTableOptions, ProjectConfig, SourceConfig, LakeConfig)
} | {
    "features": features_tables,
    "rules": rules_table,
    "obstacles": obstacles_table,
    "functions": functions_list,
    "settings": settings_tables,
}


def page(template: Path) -> str:
    """A template with its blocks filled in."""

    def block(match: re.Match[str]) -> str:
        if match.group(1) not in BLOCKS:
            raise SystemExit(f"{template.name} asks for an unknown block {match.group(1)!r}")
        return BLOCKS[match.group(1)]()

    return NOTE + _BLOCK.sub(block, template.read_text("utf-8"))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write the pages of the documentation that the code itself knows.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page differs")
    check = parser.parse_args().check
    stale = False
    for template in sorted((FOLDER / "templates").glob("*.md")):
        path = FOLDER / template.name
        wanted = page(template)
        present = path.read_text("utf-8") if path.exists() else ""
        if wanted == present:
            continue
        if check:
            stale = True
            sys.stderr.writelines(
                difflib.unified_diff(present.splitlines(True), wanted.splitlines(True), path.name, "code")
            )
        else:
            path.write_text(wanted, "utf-8")
            sys.stderr.write(f"wrote {path.name}\n")
    if stale:
        sys.stderr.write("Run `make docs`.\n")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
