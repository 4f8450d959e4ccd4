"""Names that an expression may use: relations of FROM, their columns, and those of outer queries."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pgtrickle_assets.errors import QueryError
from pgtrickle_assets.query.plan import ColumnRef, Node

Named = tuple[str, ColumnRef]


@dataclass(frozen=True, slots=True)
class Relation:
    """One item of FROM under its alias. `key` lists ids of columns that identify its rows, or is empty.

    `is_value` is set for a function that returns values of one type: then its alias stands for the value too.
    """

    alias: str
    columns: tuple[Named, ...]
    key: tuple[str, ...] = ()
    is_value: bool = False


@dataclass(frozen=True, slots=True)
class FromItem:
    """A joined part of FROM: its plan, its relations, and the columns that `*` and unqualified names see."""

    node: Node
    relations: tuple[Relation, ...]
    visible: tuple[Named, ...]

    def refreshed(self, node: Node) -> FromItem:
        """The same names over a new node, with the nullability that it gives to them."""
        by_id = {column.id: column.nullable for column in node.output}

        def fresh(columns: Iterable[Named]) -> tuple[Named, ...]:
            return tuple((name, ColumnRef(r.id, r.type, by_id.get(r.id, r.nullable))) for name, r in columns)

        relations = tuple(Relation(r.alias, fresh(r.columns), r.key, r.is_value) for r in self.relations)
        return FromItem(node, relations, fresh(self.visible))


@dataclass(slots=True)
class Scope:
    """The names of one query block; `parent` is the block around it, seen by correlated subqueries."""

    item: FromItem | None
    parent: Scope | None = None

    def resolve(self, parts: Sequence[str], line: int | None) -> ColumnRef:
        """The column that a (qualified) name means.

        Raises:
            QueryError: No such column or relation, or more than one.
        """
        scope: Scope | None = self
        while scope is not None:
            found = scope.own(parts, line)
            if found is not None:
                return found
            scope = scope.parent
        relation = self.relation(parts[0]) if len(parts) == 1 else None
        if relation is not None and relation.is_value:
            return relation.columns[0][1]
        raise self._unknown(parts, line)

    def own(self, parts: Sequence[str], line: int | None) -> ColumnRef | None:
        """The column of this block alone, or None."""
        if self.item is None:
            return None
        *qualifier, name = parts
        if not qualifier:
            matches = [ref for label, ref in self.item.visible if label == name]
        else:
            relations = [r for r in self.item.relations if r.alias == qualifier[-1]]
            matches = [ref for r in relations for label, ref in r.columns if label == name]
            if relations and not matches and self.parent is None:
                raise self._unknown(parts, line)
        if len(matches) > 1:
            raise QueryError(f'column reference "{name}" is ambiguous', line=line, hint="Qualify it with a table name.")
        return matches[0] if matches else None

    def relation(self, alias: str) -> Relation | None:
        """The relation with this alias in this block or an outer one."""
        scope: Scope | None = self
        while scope is not None:
            for relation in scope.item.relations if scope.item is not None else ():
                if relation.alias == alias:
                    return relation
            scope = scope.parent
        return None

    def _all_relations(self) -> list[Relation]:
        found: list[Relation] = []
        scope: Scope | None = self
        while scope is not None:
            found += scope.item.relations if scope.item is not None else ()
            scope = scope.parent
        return found

    def _unknown(self, parts: Sequence[str], line: int | None) -> QueryError:
        *qualifier, name = parts
        relations = self._all_relations()
        if qualifier:
            relation = next((r for r in relations if r.alias == qualifier[-1]), None)
            if relation is None:
                message = f'missing FROM-clause entry for table "{qualifier[-1]}"'
                return QueryError(message, line=line, hint=nearest(qualifier[-1], [r.alias for r in relations]))
            known = [label for label, _ in relation.columns]
            message = f'column "{name}" does not exist in "{qualifier[-1]}"'
            return QueryError(message, line=line, hint=nearest(name, known))
        known = [label for r in relations for label, _ in r.columns]
        return QueryError(f'column "{name}" does not exist', line=line, hint=nearest(name, known))


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint with the most similar known name, or an empty text; `cutoff` 1 allows no difference."""
    candidates = list(dict.fromkeys(known))
    by_folded = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.lower(), list(by_folded), n=1, cutoff=cutoff)
    return f'Did you mean "{by_folded[close[0]]}"?' if close else ""
