"""The parser may be inherited from whether sqlglot is compiled or not, and sqlglot itself stays as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import sqlglot
import sqlglot.parser
from sqlglot.parsers.postgres import PostgresParser

from pgtrickle_assets.query.interpreted import interpreted_parser


def test_subclasses_of_a_compiled_parser_can_be_made() -> None:
    own = interpreted_parser("postgres").PostgresParser

    class Narrow(own):
        pass

    assert isinstance(Narrow(), own)
    assert own.__mro__[1].__module__ == "sqlglot.parser"


def test_others_still_get_sqlglot_s_own_parser() -> None:
    before = sys.modules["sqlglot.parser"], sqlglot.parser
    interpreted_parser("postgres")
    assert (sys.modules["sqlglot.parser"], sqlglot.parser) == before
    assert issubclass(PostgresParser, sqlglot.parser.Parser)
    assert sqlglot.parse_one("SELECT 1", read="postgres").sql() == "SELECT 1"


def test_the_tests_run_with_the_compiled_parser() -> None:
    """The environment of most users has none; `interpreted_parser` then gives sqlglot's own module."""
    assert Path(sys.modules["sqlglot.parser"].__file__ or "").suffix != ".py"


def test_a_dialect_that_sqlglot_lacks_is_an_import_error() -> None:
    with pytest.raises(ImportError):
        interpreted_parser("no_such_dialect")
