"""Window functions: recompute of the partitions that changed rows belong to, before or after the change.

The state holds the rows of the window's input with the values of its calls. The old rows of an affected partition are
read from it, and the new ones follow from these rows and the delta alone, so the input itself is not read again.

Source: SQL:2016 7.15 (window partitioning); partitions are independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle_assets.differential.aggregate import as_bag
from pgtrickle_assets.differential.derivation import Derivation, read_current
from pgtrickle_assets.differential.state import State, difference, of_affected, reached_by
from pgtrickle_assets.differential.view import View, consolidated, project, union, weighted
from pgtrickle_assets.query.plan import Column, ColumnRef, Window, WindowCall
from pgtrickle_assets.query.rewrite import IdGenerator, map_window


@dataclass(frozen=True, slots=True)
class WindowState(State):
    """Rows of the input with the values of calls that share one PARTITION BY.

    `inputs` pairs each column of the child with its state column; `partition` are those the calls partition by.
    """

    inputs: tuple[tuple[Column, Column], ...]
    partition: tuple[Column, ...]
    calls: tuple[tuple[Column, WindowCall], ...]

    @property
    def rule(self) -> str:
        """See `State.rule`."""
        return "window"

    def full(self, ids: IdGenerator) -> View:
        """See `State.full`."""
        return self._computed(read_current(self.child, ids), ids)

    def _computed(self, child: View, ids: IdGenerator) -> View:
        calls = [(ids.like(column), map_window(call, child.expression)) for column, call in self.calls]
        values = {column.id: fresh for (column, _), (fresh, _) in zip(self.calls, calls, strict=True)}
        rows = View(Window(child.node, tuple(calls)), {**child.columns, **values})
        items = [(stored, rows.ref(column)) for column, stored in self.inputs]
        items += [(column, rows.ref(column)) for column, _ in self.calls]
        return project(rows, items, ids)

    def change(self, derivation: Derivation) -> View | None:
        """See `State.change`."""
        delta = derivation.delta(self.child)
        if delta is None:
            return None
        ids = derivation.ids
        columns = tuple(column for column, _ in self.inputs)
        changed = derivation.materialize(consolidated(delta, columns, ids), columns, self.rule)
        affected = reached_by(derivation, changed)
        stored_as = {column.id: stored for column, stored in self.inputs}
        pairs = [(stored_as[key.id], key) for key in self.partition]
        state_columns = self.relation.plan_columns
        old_rows = of_affected(derivation, self.stored(derivation), pairs, affected)
        old = derivation.materialize(old_rows, state_columns, self.rule)
        before = old.scan(ids)
        inputs = View(before.node, {column.id: before.columns[stored.id] for column, stored in self.inputs})
        rows = union([weighted(inputs, 1, ids, columns), changed.scan(ids)], columns, ids)
        new = self._computed(as_bag(consolidated(rows, columns, ids), ids), ids)
        return difference(derivation, new, old.scan(ids), state_columns)


def partition_columns(call: WindowCall) -> tuple[str, ...] | None:
    """Ids of the columns a call partitions by; None when it partitions by an expression."""
    ids: list[str] = []
    for part in call.partition_by:
        if not isinstance(part, ColumnRef):
            return None
        ids.append(part.id)
    return tuple(dict.fromkeys(ids))
