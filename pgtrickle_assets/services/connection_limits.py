"""How long a connection to any PostgreSQL waits for a server that says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CONNECT_SECONDS: Final = 10

LIMITS: Final[Mapping[str, int]] = {
    "connect_timeout": CONNECT_SECONDS,
    # A server that vanished without a word must not hold a run for hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Parameters of libpq, for those that a connection string leaves out."""
