"""A wall clock that tests can move for the processes they start: a small library put before the C library.

Monotonic clocks stay as they are, as they do when an operator or a time server sets the clock.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long *shift;

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("SHIFTED_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *map = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) shift = map;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, now);
    if (!result && shift && clock == CLOCK_REALTIME) now->tv_sec += *shift;
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    static int (*next)(struct timeval *, void *);
    if (!next) next = dlsym(RTLD_NEXT, "gettimeofday");
    int result = next(now, zone);
    if (!result && shift) now->tv_sec += *shift;
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class ShiftedClock:
    """The clock; it can be made where a C compiler is.

    Args:
        folder: For the library and for the file through which running processes learn of a shift.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._library = folder / "shifted_clock.so"
        self._seconds = 0
        self._shift = folder / "shift"
        self.move(0)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(self._library), "-ldl"],
            input=_SOURCE.encode(),
            check=True,
        )

    @staticmethod
    def is_possible() -> bool:
        """Whether there is a C compiler."""
        return shutil.which("cc") is not None

    def move(self, seconds: int) -> None:
        """Set the clock forward, or back."""
        self._seconds += seconds
        with self._shift.open("r+b" if self._shift.exists() else "wb") as file:
            file.write(struct.pack("l", self._seconds))

    @contextmanager
    def for_children(self) -> Iterator[None]:
        """Processes that are started in the block live by this clock."""
        os.environ.update(LD_PRELOAD=str(self._library), SHIFTED_CLOCK=str(self._shift))
        try:
            yield
        finally:
            del os.environ["LD_PRELOAD"], os.environ["SHIFTED_CLOCK"]
