"""Finding the Spark that `pgtrickle up` keeps warm, so that other commands need not start one."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtrickle_assets.control.owner import is_certainly_dead, this_process

if TYPE_CHECKING:
    from pydantic import SecretStr

REMOTE_VARIABLE: Final = "PGTRICKLE_SPARK_REMOTE"
_FILE: Final = "warm-spark.json"


@contextlib.contextmanager
def published(home: Path, remote: SecretStr) -> Iterator[None]:
    """Lets other commands of the same user find the server while the block runs."""
    file = home / _FILE
    file.unlink(missing_ok=True)
    # The address holds the token that opens the server.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        json.dump({"process": this_process(), "remote": remote.get_secret_value()}, opened)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def attach(home: Path) -> bool:
    """Makes this process use the server of a running `pgtrickle up`; returns whether there is one.

    A setting in the environment wins, and what a killed `up` left behind is passed over.
    """
    if os.environ.get(REMOTE_VARIABLE):
        return False
    try:
        found = json.loads((home / _FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    if is_certainly_dead(found["process"]):
        return False
    os.environ[REMOTE_VARIABLE] = found["remote"]
    return True
