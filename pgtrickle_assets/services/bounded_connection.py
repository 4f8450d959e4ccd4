"""A PostgreSQL connection that does not wait for ever for a server that stopped without closing it.

The kernel of a machine keeps the connections of a stopped process open and confirms what is sent to it, so neither
keepalives nor the server's own time limits end such a wait.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any, ClassVar, TypeVar

import psycopg  # noqa: TID253 (this module is loaded where a connection is opened)

T = TypeVar("T")


class BoundedConnection(psycopg.Connection[Any]):
    """Ends with an `OperationalError` when the server says nothing for too long.

    Only for sessions with a `statement_timeout` below `silence_seconds`: in others a long statement looks the same.
    """

    silence_seconds: ClassVar[float] = 330.0

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """Consume a generator of the driver, as the base class does, for as long as the server answers in time."""
        return super().wait(self._while_it_answers(gen), *args, **options)

    def _while_it_answers(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        heard = monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = monotonic()
                elif monotonic() - heard > self.silence_seconds:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server said nothing for {self.silence_seconds:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value
