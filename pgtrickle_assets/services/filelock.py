"""A lock between processes that the kernel releases when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pgtrickle_assets.errors import ServiceError


@contextlib.contextmanager
def file_lock(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold an exclusive lock on a file while the block runs.

    Args:
        path: Lock file; made when missing and left in place, so that all processes lock the same inode.
        seconds: Longest wait for another holder.

    Raises:
        ServiceError: Another process held the lock all that time.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, path, time.monotonic() + seconds)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"Another process has held {path} for too long.",
                    hint="End that process (`fuser` names it) and try again.",
                ) from error
            time.sleep(0.05)
        else:
            return
