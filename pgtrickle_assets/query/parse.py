"""PostgreSQL text to sqlglot's tree, with functions kept by name and lines kept for errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import TokenType

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.interpreted import interpreted_parser

if TYPE_CHECKING:
    from sqlglot.parsers.postgres import PostgresParser
else:
    PostgresParser = interpreted_parser("postgres").PostgresParser

_INTERVAL_FIELDS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_SPECIAL_SYNTAX = ("CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION", "OVERLAY")
_ALL_PARSERS = cast("dict[str, Any]", PostgresParser.FUNCTION_PARSERS)  # pyright: ignore[reportUnknownMemberType]
_FUNCTION_PARSERS = {name: _ALL_PARSERS[name] for name in _SPECIAL_SYNTAX}

_LAMBDAS = cast("dict[Any, Any]", PostgresParser.LAMBDAS)  # pyright: ignore[reportUnknownMemberType]


class PlainFunctionsParser(PostgresParser):
    """A PostgreSQL parser that leaves function calls alone, so that overloads are resolved by our own rules."""

    FUNCTIONS: Any = {}  # noqa: RUF012 - read by the base class
    # Without -> among them `doc -> 'key'` in an argument list stays the JSON operator; => names an argument.
    LAMBDAS: Any = {TokenType.FARROW: _LAMBDAS[TokenType.FARROW]}  # noqa: RUF012
    FUNCTION_PARSERS: Any = _FUNCTION_PARSERS

    def _parse_csv(self, parse_method: Any, sep: TokenType = TokenType.COMMA) -> list[Any]:
        """A list; the base class lets a comma at its end pass, PostgreSQL does not."""
        found = super()._parse_csv(parse_method, sep=sep)
        if found and self._prev and self._prev.token_type == sep:
            self.raise_error("something is missing after the comma", self._prev)
        return found

    def _parse_join(self, *args: Any, **options: Any) -> Any:
        """A join; the base class lets a comma that nothing follows pass here too."""
        comma = self._curr if self._curr and self._curr.token_type == TokenType.COMMA else None
        found = super()._parse_join(*args, **options)
        if comma is not None and found is None:
            self.raise_error("a table is missing after the comma", comma)
        return found

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
        """`INTERVAL 'text' [field]` with the text as written; the base class loses parts of longer texts."""
        index = self._index
        if not self._match(TokenType.INTERVAL):
            return None
        if not self._match(TokenType.STRING, advance=False):
            self._retreat(index)
            return None
        text = self._parse_primary()
        unit = None
        if self._curr and self._curr.text.upper() in _INTERVAL_FIELDS:
            unit = self._parse_var(any_token=True, upper=True)
            if self._match_text_seq("TO"):
                last = self._parse_var(any_token=True, upper=True)
                if unit is None or last is None or (unit.name, last.name) != ("YEAR", "MONTH"):
                    self.raise_error("of the intervals with two fields only YEAR TO MONTH is supported")
                unit = None
        return self.expression(exp.Interval(this=text, unit=unit))


class PlainFunctions(Postgres):
    """PostgreSQL's dialect with `PlainFunctionsParser`."""

    Parser: Any = PlainFunctionsParser
    parser_class: Any = PlainFunctionsParser
    # Subscripts stay as written; PostgreSQL's arrays start at 1.
    INDEX_OFFSET = 0


def parse(sql: str) -> exp.Expr:
    """Parse one query.

    Raises:
        QueryError: The text is not one SELECT (or set operation, VALUES, WITH ...) that the parser understands.
    """
    try:
        statements = [s for s in PlainFunctions().parse(sql) if s is not None]
    except ParseError as error:
        details = error.errors[0] if error.errors else {}
        near = str(details.get("highlight") or "").strip()
        where = f' near "{near}"' if near else ""
        raise QueryError(
            f"syntax error{where}: {details.get('description') or error}", line=details.get("line")
        ) from error
    except TokenError as error:
        raise QueryError(f"syntax error: {error}", line=1) from error
    except RecursionError as error:
        raise QueryError("the query is nested too deeply", hint="Split it over several stream tables.") from error
    if not statements:
        raise QueryError("the query is empty", line=1)
    if len(statements) > 1:
        raise QueryError("a stream table is defined by one query, but the text holds several statements")
    statement = statements[0]
    if not isinstance(statement, (exp.Query, exp.Values)):
        raise QueryError(f"a stream table is defined by a SELECT, not by {statement.key.upper()}", line=1)
    return statement


def class_of(node: Any) -> type[Any]:
    """The class of a node, for tables of handlers."""
    return cast("type[Any]", type(node))


def parts_of(node: Any, key: str) -> list[Any]:
    """The list that a node keeps under a key; empty when there is none."""
    found: Any = node.args.get(key)
    return list(found) if found else []


def line_of(node: Any) -> int | None:
    """The 1-based line where a node stands: the first position recorded in it or below it."""
    if not isinstance(node, exp.Expr):
        return None
    for part in node.walk():
        line = part.meta.get("line")
        if isinstance(line, int):
            return line
    return None
