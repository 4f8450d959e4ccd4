"""Which tables a query names: found in its text alone, before anything is known of them."""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from pgtrickle_assets.errors import QueryError


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table name as the query has it: folded like PostgreSQL folds, one to three parts, with its line."""

    parts: tuple[str, ...]
    line: int | None


def referenced_tables(sql: str, dialect: str = "postgres") -> tuple[NamedTable, ...]:
    """The tables that a query reads, each once; common table expressions are not tables.

    Raises:
        QueryError: When the text is not one SELECT.
    """
    try:
        statements = [statement for statement in sqlglot.parse(sql, read=dialect) if statement is not None]
    except (ParseError, TokenError) as error:
        details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
        near = f" near {details['highlight']!r}" if details.get("highlight") else ""
        raise QueryError(f"the query cannot be parsed{near}.", line=details.get("line")) from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise QueryError("a defining query is one SELECT statement.")
    found: dict[tuple[str, ...], NamedTable] = {}
    for table in statements[0].find_all(exp.Table, bfs=False):
        if not isinstance(table.this, exp.Identifier):
            continue
        identifiers = [part for part in (table.args.get("catalog"), table.args.get("db"), table.this) if part]
        parts = tuple(_folded(identifier, dialect) for identifier in identifiers)
        if len(parts) == 1 and parts[0] in _visible_expressions(table, dialect):
            continue
        found.setdefault(parts, NamedTable(parts, table.this.meta.get("line")))
    return tuple(found.values())


def _folded(identifier: exp.Identifier, dialect: str) -> str:
    return identifier.name if identifier.args.get("quoted") or dialect != "postgres" else identifier.name.lower()


def _visible_expressions(table: exp.Table, dialect: str) -> set[str]:
    """Names of the common table expressions that a table name at this place can mean."""
    names: set[str] = set()
    inside: exp.Expr = table
    around = table.parent
    while around is not None:
        if isinstance(around, exp.With):
            # Within the WITH list, an expression sees those before it, and itself when recursive.
            for expression in around.expressions:
                if expression is inside and not around.args.get("recursive"):
                    break
                names.add(_alias(expression, dialect))
        else:
            clause = around.args.get("with_") or around.args.get("with")
            if isinstance(clause, exp.With) and clause is not inside:
                names.update(_alias(expression, dialect) for expression in clause.expressions)
        inside, around = around, around.parent
    return names


def _alias(expression: exp.Expr, dialect: str) -> str:
    identifier = expression.args["alias"].this
    return _folded(identifier, dialect)
