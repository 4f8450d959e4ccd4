"""Views in the lake that hold the query of a stream table, for those that ask for one.

Such a view always answers from what the lake holds now, while the stream table answers as of its last refresh. It
follows its stream table: made with it, changed when the query alone is altered, renamed with the option, dropped with
it. A view is known as ours by its comment. What stands in the way of a view is a warning and never an error: no refresh
needs it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.lake.ddl import alter
from pgtrickle_assets.lake.views import CreateView, DropView, StoredView, lake_relation, stored_views
from pgtrickle_assets.query.render import render
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.version import VERSION

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake
    from pgtrickle_assets.lake.commit_session import Operation
    from pgtrickle_assets.refresh.definition import Definition

logger = logging.getLogger(__name__)

_AUTHOR: Final = f"pg_trickle/{VERSION}/view"
_COMMENT: Final = "The query of stream table "


def keep_views(lake: Lake, definitions: Iterable[Definition], removed: Iterable[TableName]) -> None:
    """Make the lake's views fit the stream tables of a project.

    Args:
        lake: The lake.
        definitions: All stream tables of the project; their inputs are in the lake.
        removed: Stream tables that the project no longer has.

    Raises:
        LakeError: The lake cannot be written.
    """
    stored = stored_views(lake)
    wanted: dict[TableName, tuple[str, str]] = {}
    for definition in definitions:
        name = view_of(definition)
        query = None if name is None else _query(definition, name)
        if name is not None and query is not None and _is_free(lake, name, definition, stored):
            wanted[name] = (query, _comment(definition.name))
    ours = {_comment(name) for name in (*(d.name for d in definitions), *removed)}
    operations: list[Operation] = [
        DropView(name) for name, view in stored.items() if view.comment in ours and name not in wanted
    ]
    operations += [
        CreateView(name, query, comment=comment)
        for name, (query, comment) in wanted.items()
        if stored.get(name) != StoredView(query, comment)
    ]
    if operations:
        alter(lake, *operations, author=_AUTHOR, message="Keep views of stream tables")


def view_of(definition: Definition) -> TableName | None:
    """The view that a stream table asks for."""
    view = definition.stream_table.view
    return None if view is None else TableName(*view.split(".", 1))


def _query(definition: Definition, name: TableName) -> str | None:
    plan = definition.plan
    if definition.stream_table.dialect != "postgres":
        logger.warning("No view %s of %s: its query is not in PostgreSQL's dialect.", name, definition.name)
        return None
    pairs = [(column.id, wanted.name) for column, wanted in zip(plan.root.output, plan.output, strict=True)]
    return render(plan.root, "duckdb", lambda scan: lake_relation(plan.inputs[scan.relation].name), pairs)


def _is_free(lake: Lake, name: TableName, definition: Definition, stored: Mapping[TableName, StoredView]) -> bool:
    if lake.table(name) is not None:
        logger.warning("No view %s of %s: the lake has a table of that name.", name, definition.name)
        return False
    if name in stored and stored[name].comment != _comment(definition.name):
        logger.warning("No view %s of %s: somebody else has made a view of that name.", name, definition.name)
        return False
    return True


def _comment(name: TableName) -> str:
    return f"{_COMMENT}{name}"
