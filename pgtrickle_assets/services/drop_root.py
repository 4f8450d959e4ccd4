"""Run a command as another user, keeping at most the right to read through directories it cannot enter.

PostgreSQL refuses to run as root. A root user's clone often lives below a directory that nobody else may enter
(`/root`), so changing the user alone would cut the server off from its own files. Started as a script, before the
server, because changing credentials between fork and exec of a threaded Python process is unsafe:

    python -I drop_root.py UID GID CAPABILITY COMMAND [ARGUMENT ...]

CAPABILITY is `none` or the number of one Linux capability that the command keeps.
"""

from __future__ import annotations

import ctypes
import os
import sys

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Data(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def become(uid: int, gid: int, capability: int | None) -> None:
    """Change this process to `uid`:`gid` for good.

    Args:
        uid: User to become; must not be 0.
        gid: Its only group afterwards.
        capability: Linux capability that survives the change and later execs, or None.

    Raises:
        OSError: The kernel does not allow it (for example a container without that capability).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if capability is not None:
        _check(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl(PR_SET_KEEPCAPS)")
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if capability is None:
        return
    mask = 1 << capability
    data = (_Data * 2)()
    data[0] = _Data(mask, mask, mask)
    header = _Header(_CAPABILITY_VERSION_3, 0)
    _check(libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")
    _check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0), "prctl(PR_CAP_AMBIENT_RAISE)")


if __name__ == "__main__":
    _uid, _gid, _capability, *_command = sys.argv[1:]
    become(int(_uid), int(_gid), None if _capability == "none" else int(_capability))
    os.execv(_command[0], _command)  # noqa: S606  the whole purpose of this script
