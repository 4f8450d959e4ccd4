"""Which process owns a running piece of work, and whether it is certainly gone."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from any other on any machine.

    Attributes:
        host: Host name.
        namespace: Identity of the process id namespace; containers on one host may share its name.
        pid: Process id in that namespace.
        started: When it started, in clock ticks since boot; process ids are used again.
    """

    host: str
    namespace: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.host}/{self.namespace}/{self.pid}/{self.started}"


def this_process() -> str:
    """Text that identifies this process in `owner` columns and on Dagster's runs."""
    return _text(os.getpid())


def process(pid: int) -> str:
    """As `this_process`, for another one of this machine."""
    return str(Owner(socket.gethostname(), _namespace(), pid, _started(pid) or "?"))


def is_certainly_dead(owner: str) -> bool:
    """Whether the process ran on this machine and is gone.

    False for a process on another machine: only its missing heartbeat can tell.
    """
    parts = owner.split("/")
    if len(parts) != 4 or not parts[2].isdigit():
        return False
    host, namespace, pid, started = parts
    if host != socket.gethostname() or namespace != _namespace() or started == "?":
        return False
    return _started(int(pid)) != started


@cache
def _text(pid: int) -> str:
    return process(pid)


@cache
def _namespace() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot[:8]}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return "?"


def _started(pid: int) -> str | None:
    """Start time of a live process; None when there is none, "?" where the system does not tell."""
    if not Path("/proc/self/stat").exists():
        return "?"
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name, in parentheses, may hold blanks; the fields after it cannot.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]
