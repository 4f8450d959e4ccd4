"""ORDER BY with LIMIT and OFFSET, over everything or per partition (DISTINCT ON, LATERAL top-n).

The state holds the rows on top. Where a stored row was deleted, or with OFFSET, the affected partitions are ranked
again from the child's new state. Otherwise the new top is the top of the stored rows and the inserted ones, and the
child is not read.

Source: Yi et al., Efficient Maintenance of Materialized Top-k Views, ICDE 2003.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pgtrickle_assets.differential.aggregate import as_bag
from pgtrickle_assets.differential.derivation import Derivation, read_current
from pgtrickle_assets.differential.expressions import greater, integer, less, same
from pgtrickle_assets.differential.state import State, affected_keys, difference, of_affected, reached_by
from pgtrickle_assets.differential.view import Rows, View, consolidated, joined, project, select, union
from pgtrickle_assets.query.plan import Column, Filter, SortKey, TopK
from pgtrickle_assets.query.rewrite import TRUE, IdGenerator, map_sort_keys, ref


@dataclass(frozen=True, slots=True)
class TopKState(State):
    """The top rows; `inputs` pairs each column of the child with its state column."""

    inputs: tuple[tuple[Column, Column], ...]
    order_by: tuple[SortKey, ...]
    limit: int | None
    offset: int
    partition: tuple[Column, ...]

    @property
    def rule(self) -> str:
        """See `State.rule`."""
        return "top_k"

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of the child."""
        return tuple(column for column, _ in self.inputs)

    def full(self, ids: IdGenerator) -> View:
        """See `State.full`."""
        return self._as_stored(self._top(read_current(self.child, ids)), ids)

    def _as_stored(self, rows: View, ids: IdGenerator) -> View:
        return project(rows, [(stored, rows.ref(column)) for column, stored in self.inputs], ids)

    def _as_child(self, rows: View) -> View:
        columns = {column.id: rows.columns[stored.id] for column, stored in self.inputs}
        return View(rows.node, columns, rows.weight)

    def _top(self, rows: View) -> View:
        order = map_sort_keys(self.order_by, rows.expression)
        partition = tuple(rows.columns[column.id] for column in self.partition)
        return View(TopK(rows.node, order, self.limit, self.offset, partition), rows.columns)

    def change(self, derivation: Derivation) -> View | None:
        """See `State.change`."""
        delta = derivation.delta(self.child)
        if delta is None:
            return None
        ids = derivation.ids
        changed = derivation.materialize(consolidated(delta, self.columns, ids), self.columns, self.rule)
        affected = reached_by(derivation, changed)
        old = self._old(derivation, affected)
        new = self._new_top(derivation, changed, affected, old)
        return difference(derivation, self._as_stored(new, ids), old(), self.relation.plan_columns)

    def _old(self, derivation: Derivation, affected: Rows) -> Callable[[], View]:
        """Gives readings of the stored rows of affected partitions, which are found once where there are many."""

        def read() -> View:
            return self._affected_rows(derivation, self.stored(derivation), affected, of_state=True)

        if not self.partition or self.relation.name in derivation.small:
            return read
        found = derivation.materialize(read(), self.relation.plan_columns, self.rule)
        return lambda: found.scan(derivation.ids)

    def _affected_rows(self, derivation: Derivation, rows: View, keys: Rows, *, of_state: bool) -> View:
        stored_as = {column.id: stored for column, stored in self.inputs}
        pairs = [(stored_as[key.id] if of_state else key, key) for key in self.partition]
        return of_affected(derivation, rows, pairs, keys)

    def _new_top(self, derivation: Derivation, changed: Rows, affected: Rows, old: Callable[[], View]) -> View:
        if self.offset or self.limit is None:
            return self._top(self._affected_rows(derivation, derivation.new(self.child), affected, of_state=False))
        ids = derivation.ids
        known = select(self._as_child(old()), self.columns, ids)
        candidates = union([known, self._inserted(derivation, changed)], self.columns, ids)
        if changed.inserts_only:
            return self._top(candidates)
        spoiled = self._spoiled(derivation, changed, old)
        again = self._affected_rows(derivation, derivation.new(self.child), spoiled, of_state=False)
        keys = spoiled.scan(ids)
        conditions = [same(candidates.ref(key), keys.ref(key)) for key in self.partition] or [TRUE]
        intact = joined("anti", candidates, keys, conditions)
        return self._top(union([intact, again], self.columns, ids))

    def _inserted(self, derivation: Derivation, changed: Rows) -> View:
        rows = changed.scan(derivation.ids)
        assert rows.weight is not None  # noqa: S101 - the delta is a Z-set
        rows = rows.with_node(Filter(rows.node, greater(ref(rows.weight), integer(0))))
        return select(as_bag(rows, derivation.ids), self.columns, derivation.ids)

    def _spoiled(self, derivation: Derivation, changed: Rows, old: Callable[[], View]) -> Rows:
        """Partitions of which a stored row was deleted."""
        ids = derivation.ids
        gone = changed.scan(ids)
        assert gone.weight is not None  # noqa: S101 - the delta is a Z-set
        gone = gone.with_node(Filter(gone.node, less(ref(gone.weight), integer(0))))
        stored = self._as_child(old())
        hit = joined("semi", gone, stored, [same(gone.ref(column), stored.ref(column)) for column in self.columns])
        return affected_keys(derivation, hit, self.partition, self.rule)
