"""Who owns a PostgreSQL data directory, and which process serves it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services.drop_root import CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

_UNPRIVILEGED_USERS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The user that a server started by root runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class PostmasterFile:
    """What `postmaster.pid` says.

    Attributes:
        pid: The postmaster, alive or not.
        port: Its TCP port; None while it is starting.
        status: `starting`, `ready`, `standby` or `stopping`; empty while unknown.
    """

    pid: int
    port: int | None
    status: str


def server_user(pgdata: Path) -> ServerUser | None:
    """User to run the server as, or None for the current one.

    Root must not run it. The owner of an existing data directory goes first, so that it stays usable.

    Raises:
        ServiceError: We are root and this machine has no other user to run it as.
    """
    if os.geteuid() != 0:
        return None
    if pgdata.exists() and (owner := pgdata.stat().st_uid) != 0:
        entry = pwd.getpwuid(owner)
        return ServerUser(entry.pw_name, entry.pw_uid, entry.pw_gid)
    for name in _UNPRIVILEGED_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServerUser(name, entry.pw_uid, entry.pw_gid)
    raise ServiceError(
        f"PostgreSQL refuses to run as root and none of the users {', '.join(_UNPRIVILEGED_USERS)} exists.",
        hint="Add one of them, or run as another user.",
    )


def capability_to_reach(user: ServerUser, paths: Iterable[Path]) -> int | None:
    """Linux capability that lets `user` enter the directories above `paths`; None when it can without.

    Raises:
        ServiceError: It cannot, and this process has no capability to hand on.
    """
    closed = next((folder for path in paths for folder in path.parents if not _may_enter(user, folder)), None)
    if closed is None:
        return None
    held = _effective_capabilities()
    for capability in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        if held >> capability & 1:
            return capability
    raise ServiceError(
        f"PostgreSQL runs as {user.name}, who may not enter {closed}.",
        hint=f"Allow it (chmod o+x {closed}), or install and set PGTRICKLE_HOME outside of it.",
    )


def postmaster_of(pgdata: Path) -> int | None:
    """Process id of the live postmaster that serves `pgdata`, else None.

    A pid file survives a crash, and its number may belong to something else by now; a killed postmaster whose parent
    still lives is a zombie that answers signals. The command line tells them apart.
    """
    entry = read_postmaster_file(pgdata)
    if entry is None:
        return None
    try:
        command = Path(f"/proc/{entry.pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self").exists() else _alive(entry.pid)
    arguments = command.split(b"\0")
    return entry.pid if b"postgres" in arguments[0] and os.fsencode(pgdata) in arguments else None


def read_postmaster_file(pgdata: Path) -> PostmasterFile | None:
    """Parse `postmaster.pid`; None when there is none, or it is only half written."""
    try:
        lines = (pgdata / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        pid = int(lines[0])
        port = int(lines[3]) if len(lines) > 3 else None
    except (FileNotFoundError, ValueError, IndexError):
        return None
    return PostmasterFile(pid, port, lines[7].strip() if len(lines) > 7 else "")


def _alive(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return pid
    return pid


def _may_enter(user: ServerUser, folder: Path) -> bool:
    status = folder.stat()
    if status.st_uid == user.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == user.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)


def _effective_capabilities() -> int:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
