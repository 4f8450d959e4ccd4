"""Long-running processes of `pgtrickle up`, which never outlive it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services import leash

_LOG_TAIL = 3
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Children:
    """Child processes on a leash: they end with this process, however it ends.

    Args:
        logs: Folder for their logs.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._files: list[BinaryIO] = []

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts a process whose output goes to `<name>.log`."""
        self.logs.mkdir(parents=True, exist_ok=True)
        log = self.log_of(name).open("wb")
        self._files.append(log)
        self._processes[name] = subprocess.Popen(  # noqa: S603 - our own script and Dagster's commands
            [sys.executable, "-I", str(Path(leash.__file__)), *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=dict(environment),
            # Ctrl-C in a terminal reaches the whole group; the order of stopping is ours.
            start_new_session=True,
        )

    def log_of(self, name: str) -> Path:
        """Where the output of a process goes."""
        return self.logs / f"{name}.log"

    def check(self) -> None:
        """Checks that all processes run.

        Raises:
            ServiceError: Naming the one that ended, with the end of its log.
        """
        for name, process in self._processes.items():
            if process.poll() is not None:
                lines = self.log_of(name).read_text(encoding="utf-8", errors="replace").strip().splitlines()
                said = _COLOUR.sub("", " ".join(lines[-_LOG_TAIL:]))
                raise ServiceError(f"The {name} has ended: {said}", hint=f"See {self.log_of(name)}.")

    def stop(self) -> None:
        """Stops all processes, the last started first, and waits for them."""
        for process in reversed(self._processes.values()):
            if process.stdin is not None:
                process.stdin.close()
        for process in reversed(self._processes.values()):
            try:
                process.wait(timeout=leash.GRACE_SECONDS + 5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        while self._files:
            self._files.pop().close()

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
