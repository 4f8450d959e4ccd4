"""Showing that the owner of a delivery lives, while it writes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from pgtrickle_assets.control import delivery as deliveries
from pgtrickle_assets.errors import PgTrickleError

if TYPE_CHECKING:
    from pgtrickle_assets.lake.catalog import Lake

logger = logging.getLogger(__name__)

BEAT_SECONDS = 15.0


@contextmanager
def beating(lake: Lake, delivery_id: str) -> Iterator[None]:
    """Renew the heartbeat of a delivery until the block ends."""
    done = Event()

    def beat() -> None:
        import psycopg

        while not done.wait(BEAT_SECONDS):
            try:
                with lake.connection() as connection:
                    deliveries.heartbeat(connection, delivery_id)
            except (psycopg.Error, PgTrickleError) as error:
                # A missed beat is no reason to stop; the delivery itself meets the same trouble and reports it.
                logger.warning("The heartbeat of delivery %s was missed: %s", delivery_id, error)

    thread = Thread(target=beat, name=f"heartbeat-{delivery_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
