"""Aggregates as components that can be added up.

An aggregate is algebraic when its value is a function of components that a delta changes by addition (counts and
exact sums), or of an extremum that only a deletion of itself can spoil. The final expressions are written so that
they give the very value and type that evaluating the aggregate in full gives.

Source: Gray et al., Data Cube, 1996 (distributive, algebraic and holistic aggregates); PostgreSQL 18, numeric.c, for
the types of sums and averages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as TypingLiteral

from pgtrickle_assets.differential.expressions import choose, greater, integer, multiply, zero
from pgtrickle_assets.differential.steps import DeriveOptions
from pgtrickle_assets.query.functions.numbers import as_decimal, shows_own_digits
from pgtrickle_assets.query.plan import AggregateCall, Call, Cast, Column, Expression
from pgtrickle_assets.query.rewrite import IdGenerator, conjunction, is_not_null, ref
from pgtrickle_assets.query.types import BOOLEAN, FLOAT64, INT32, INT64, MAX_DECIMAL_PRECISION, ColumnType, decimal

ComponentKind = TypingLiteral["sum", "min", "max"]

WEIGHT_DIGITS = 10
WEIGHTED_PRECISION = 27
"""Decimals of up to this many digits are multiplied by a weight of ten digits without losing one."""


@dataclass(frozen=True, slots=True)
class Component:
    """One stored part of a group's state: a sum (never NULL) or an extremum (NULL when there is no value).

    `narrow` is the argument of a sum in a type that leaves room for a weight, where there is one.
    """

    column: Column
    kind: ComponentKind
    argument: Expression
    narrow: Expression | None = None

    def weighted(self, weight: Expression) -> Expression:
        """What a row of this weight adds to a sum; without `narrow` the weight must be 1 or -1."""
        if self.argument == integer(1):
            return weight
        if self.argument.type == INT64:
            return multiply(weight, self.argument, INT64)
        if self.argument.type.is_float:
            return multiply(Cast(weight, FLOAT64), self.argument, FLOAT64)
        if self.narrow is None:
            negative = Call("neg", (self.argument,), self.argument.type, self.argument.nullable)
            return choose(greater(weight, integer(0)), self.argument, negative)
        kind = self.narrow.type
        width = min((kind.precision or 0) + WEIGHT_DIGITS, MAX_DECIMAL_PRECISION)
        return multiply(Cast(weight, decimal(WEIGHT_DIGITS, 0)), self.narrow, decimal(width, kind.scale or 0))

    @property
    def needs_unit_weights(self) -> bool:
        """Whether `weighted` asks for weights of 1 and -1."""
        return self.argument.type.name == "decimal" and self.narrow is None


def _no_components() -> dict[tuple[ComponentKind, Expression, ColumnType], Component]:
    return {}


@dataclass(slots=True)
class Components:
    """The different components that the aggregates of one node need; equal ones are kept once."""

    ids: IdGenerator
    options: DeriveOptions
    grouped: bool
    found: dict[tuple[ComponentKind, Expression, ColumnType], Component] = field(default_factory=_no_components)

    def component(
        self, kind: ComponentKind, argument: Expression, name: str, narrow: Expression | None = None
    ) -> Component:
        """The component over `argument`, new or known."""
        key = (kind, argument, argument.type)
        if key not in self.found:
            column = self.ids.column(argument.type, nullable=kind != "sum", name=name)
            self.found[key] = Component(column, kind, argument, narrow)
        return self.found[key]

    def rows(self) -> Component:
        """The number of rows of the group."""
        return self.component("sum", integer(1), "rows")

    def count(self, condition: Expression | None) -> Component:
        """The number of rows for which `condition` is true."""
        if condition is None:
            return self.rows()
        return self.component("sum", choose(condition, integer(1), integer(0)), "count")

    def final(self, call: AggregateCall) -> Expression | None:
        """The aggregate's value over component columns, or None when the aggregate is not algebraic."""
        if call.function in ("min", "max"):
            kind: ComponentKind = "min" if call.function == "min" else "max"
            value = call.args[0] if call.filter is None else choose(call.filter, call.args[0])
            return ref(self.component(kind, value, kind).column)
        if call.function in ("bool_and", "bool_or"):
            return self._boolean(call)
        if call.distinct:
            return None
        match call.function:
            case "count":
                return ref(self._present(call).column)
            case "sum":
                total = self._total(call, call.type)
                return None if total is None else self._unless_empty(call, ref(total.column))
            case "avg":
                return self._average(call)
            case _:
                return None

    def _average(self, call: AggregateCall) -> Expression | None:
        (argument,) = call.args
        if call.type.name == "decimal":
            total = self._total(call, decimal(38, as_decimal(argument.type).scale or 0))
        else:
            total = self._total(call, FLOAT64)
        if total is None:
            return None
        count = Call("nullif", (ref(self._present(call).column), integer(0)), INT64)
        divisor: Expression = Cast(count, FLOAT64) if call.type.is_float else count
        operands: tuple[Expression, ...] = (ref(total.column), divisor)
        if shows_own_digits(argument.type):
            digits: Expression = Call("own_digits", (argument,), INT32, argument.nullable)
            digits = digits if call.filter is None else choose(call.filter, digits)
            operands = (*operands, ref(self.component("max", digits, "digits").column))
        return Call("/", operands, call.type)

    def _boolean(self, call: AggregateCall) -> Expression:
        (argument,) = call.args
        deciding = "is_false" if call.function == "bool_and" else "is_true"
        decided = self.count(_all(call.filter, [Call(deciding, (argument,), BOOLEAN, nullable=False)]))
        some = greater(ref(decided.column), integer(0))
        value = Call("not", (some,), BOOLEAN, nullable=False) if call.function == "bool_and" else some
        return self._unless_empty(call, value)

    def _total(self, call: AggregateCall, result: ColumnType) -> Component | None:
        (argument,) = call.args
        exact = argument.type.is_integer or argument.type.name == "decimal"
        if not (exact or (self.options.algebraic_floats and argument.type.is_float)):
            return None
        if result.name not in ("int64", "decimal", "float64"):
            return None
        present = _all(call.filter, [is_not_null(argument)])
        assert present is not None  # noqa: S101 - there is at least one part
        value = argument if argument.type == result else Cast(argument, result)
        narrow: Expression | None = None
        if result.name == "decimal" and (as_decimal(argument.type).precision or 0) <= WEIGHTED_PRECISION:
            small = as_decimal(argument.type)
            tight = argument if argument.type == small else Cast(argument, small)
            narrow = choose(present, tight, zero(small))
        return self.component("sum", choose(present, value, zero(result)), "sum", narrow)

    def _present(self, call: AggregateCall) -> Component:
        present = [is_not_null(argument) for argument in call.args if argument.nullable]
        return self.count(_all(call.filter, present))

    def _unless_empty(self, call: AggregateCall, value: Expression) -> Expression:
        present = self._present(call)
        # A group exists as long as it has rows, so a sum over all of them is never empty.
        if self.grouped and present == self.rows():
            return value
        return choose(greater(ref(present.column), integer(0)), value)


def _all(condition: Expression | None, more: list[Expression]) -> Expression | None:
    return conjunction(more if condition is None else [condition, *more])
