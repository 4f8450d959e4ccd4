"""Expressions of a plan as SQL text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pgtrickle_assets.query.functions import Emission, write
from pgtrickle_assets.query.functions.overflow import INFINITY, out_of_range
from pgtrickle_assets.query.functions.registry import Dialect
from pgtrickle_assets.query.plan import Call, Case, Cast, ColumnRef, Expression, Literal, SortKey
from pgtrickle_assets.query.render_types import cast_text, identifier, literal, type_name
from pgtrickle_assets.query.types import FLOAT32, FLOAT64, ColumnType

_NAME = re.compile(r'[`"]?\w+[`"]?(\.\w+)?')

_FORGETFUL = frozenset(
    ("+", "-", "*", "/", "%", "neg", "abs", "floor", "ceil", "trunc", "round_decimal", "sign_decimal", "||")
)
"""Functions of which DuckDB forgets the type over a constant NULL."""


class ExpressionWriter:
    """Writes expressions for one engine; columns are named by their ids."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect: Dialect = dialect
        self._bound = 0

    def expression(self, expression: Expression) -> str:
        """The text of an expression."""
        match expression:
            case ColumnRef():
                return identifier(expression.id, self.dialect)
            case Literal():
                return literal(expression, self.dialect)
            case Cast():
                return self.cast(self.expression(expression.arg), expression.arg.type, expression.type)
            case Case():
                return self._case(expression)
            case Call():
                text = write(Emission(expression, tuple(self.expression(arg) for arg in expression.args), self))
                return self._typed(text, expression) if self.dialect == "duckdb" else text

    def _typed(self, text: str, call: Call) -> str:
        """The text of a call, with its type where DuckDB would forget it."""
        is_forgotten = call.function in _FORGETFUL and any(map(_is_null, call.args))
        return f"CAST({text} AS {self.type_name(call.type)})" if is_forgotten else text

    def _case(self, case: Case) -> str:
        parts = [f"WHEN {self.expression(when)} THEN {self.expression(then)}" for when, then in case.branches]
        if case.otherwise is not None:
            parts.append(f"ELSE {self.expression(case.otherwise)}")
        return f"(CASE {' '.join(parts)} END)"

    def cast(self, text: str, source: ColumnType, target: ColumnType) -> str:
        """The text that converts a value as PostgreSQL does."""
        if source == FLOAT64 and target == FLOAT32:
            return self.let((text,), lambda names: self._shortened(names[0]))
        return cast_text(text, source, target, self.dialect)

    def _shortened(self, text: str) -> str:
        """A double as a real: out of its range is an error."""
        short = cast_text(text, FLOAT64, FLOAT32, self.dialect)
        large = f"abs({short}) = {INFINITY} AND abs({text}) < {INFINITY}"
        small = f"{short} = 0 AND {text} <> 0"
        checks = [(large, "overflow"), (small, "underflow")]
        wrong = " ".join(f"WHEN {test} THEN {out_of_range(self, FLOAT32, what)}" for test, what in checks)
        return f"(CASE {wrong} ELSE {short} END)"

    def type_name(self, kind: ColumnType) -> str:
        """The engine's name of a type."""
        return type_name(kind, self.dialect)

    def let(self, values: tuple[str, ...], body: Callable[[tuple[str, ...]], str]) -> str:
        """Bind texts to names through a lambda over a one-element array; short texts are simply repeated."""
        names: list[str] = []
        fields: list[str] = []
        self._bound += 1
        variable = f"v{self._bound}"
        for index, value in enumerate(values):
            if len(value) <= 12 and _NAME.fullmatch(value):
                names.append(value)
            else:
                fields.append(value)
                names.append(f"{variable}.f{index}")
        if not fields:
            return body(tuple(names))
        text = body(tuple(names))
        bound = [
            (f"f{i}", v) for i, (v, n) in enumerate(zip(values, names, strict=True)) if n.startswith(f"{variable}.")
        ]
        if self.dialect == "spark":
            struct = ", ".join(f"'{name}', {value}" for name, value in bound)
            return f"transform(array(named_struct({struct})), {variable} -> {text})[0]"
        struct = ", ".join(f"'{name}': {value}" for name, value in bound)
        return f"list_transform([{{{struct}}}], lambda {variable}: {text})[1]"

    def sort_keys(self, keys: Sequence[SortKey]) -> str:
        """The items of an ORDER BY."""
        return ", ".join(
            f"{self.expression(key.expression)} {'DESC' if key.descending else 'ASC'} "
            f"NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for key in keys
        )


def _is_null(expression: Expression) -> bool:
    """Whether a constant NULL is what an expression is, or is made of."""
    match expression:
        case Literal():
            return expression.value is None
        case Cast():
            return _is_null(expression.arg)
        case Call():
            return any(map(_is_null, expression.args))
        case _:
            return False
