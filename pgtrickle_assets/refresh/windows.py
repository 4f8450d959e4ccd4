"""Which part of its inputs' history a refresh moves over.

All base tables of a run are read at one cut, and upstream stream tables as they were built for that cut; an upstream
that is not there yet makes its readers wait instead of mixing two points in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pgtrickle_assets.errors import TransientError
from pgtrickle_assets.query.types import TableName
from pgtrickle_assets.refresh.model import InputWindow


class UpstreamNotReadyError(TransientError):
    """A stream table that this one reads is not built for the cut."""


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """How far an upstream stream table is: its cut, and the snapshot that holds its content of that cut."""

    cut: int
    snapshot: int


def choose_cut(name: TableName, head: int, upstream: Mapping[TableName, UpstreamState | None]) -> int:
    """The newest cut at which all inputs are known: the head for base tables alone, else the upstreams' common cut.

    Raises:
        UpstreamNotReadyError: An upstream was never filled, or two of them are at different cuts.
    """
    if not upstream:
        return head
    cuts = {table: _filled(name, table, state).cut for table, state in upstream.items()}
    if len(set(cuts.values())) > 1:
        listed = ", ".join(f"{table} at {cut}" for table, cut in sorted(cuts.items()))
        raise UpstreamNotReadyError(
            f"{name} cannot be refreshed: what it reads is at different cuts ({listed}).",
            hint="Refresh them together, for example with `pgtrickle refresh`.",
        )
    return next(iter(cuts.values()))


def windows_at(
    name: TableName,
    cut: int,
    inputs: Sequence[TableName],
    upstream: Mapping[TableName, UpstreamState | None],
    frontier: Mapping[str, int] | None,
) -> tuple[InputWindow, ...]:
    """The window of each input up to a cut.

    Args:
        name: The stream table, for errors.
        cut: Lake snapshot at which base tables are read.
        inputs: Lake tables that the query reads.
        upstream: State of those inputs that are stream tables.
        frontier: Snapshot up to which the stream table is built, by input; None before its first fill.

    Raises:
        UpstreamNotReadyError: An upstream stream table is not built for the cut.
    """
    windows: list[InputWindow] = []
    for table in inputs:
        until = cut
        if table in upstream:
            state = _filled(name, table, upstream[table])
            if state.cut != cut:
                raise UpstreamNotReadyError(
                    f"{name} cannot be refreshed to cut {cut}: {table} is built for cut {state.cut}.",
                    hint="It is refreshed when its upstream is.",
                )
            until = max(cut, state.snapshot)
        since = None if frontier is None else frontier.get(str(table))
        windows.append(InputWindow(str(table), since, until))
    return tuple(windows)


def _filled(name: TableName, table: TableName, state: UpstreamState | None) -> UpstreamState:
    if state is None:
        raise UpstreamNotReadyError(
            f"{name} cannot be refreshed: {table}, which it reads, has not been filled yet.",
            hint=f"Refresh {table} first, or both with `pgtrickle refresh`.",
        )
    return state
