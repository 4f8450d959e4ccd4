"""Run a command that ends when its starter does, however the starter ends.

    python -I leash.py COMMAND [ARGUMENT ...]

The starter keeps the other end of our standard input open. A read that ends means that the starter is gone, also
after kill -9; then the command gets SIGTERM and, ten seconds later, SIGKILL. The exit status is the command's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

GRACE_SECONDS = 10.0


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


def _watch(child: subprocess.Popen[bytes]) -> None:
    # Not through sys.stdin: its lock, held by this thread, would abort the interpreter at exit.
    while os.read(0, 1):
        pass
    _end(child)


def main(command: list[str]) -> int:
    """Run the command; returns its exit status."""
    # A terminal sends Ctrl-C to all its processes; when to stop is the starter's decision. Before the command starts,
    # so that there is no moment without it; a handler, as SIG_IGN would pass on to the command.
    signal.signal(signal.SIGINT, lambda *_: None)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603  the whole purpose of this script
    signal.signal(signal.SIGTERM, lambda *_: _end(child))
    threading.Thread(target=_watch, args=(child,), daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
