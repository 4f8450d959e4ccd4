"""A TCP proxy in front of a server, for tests that break the network: it watches for bytes and then does something.

It knows nothing of the protocol behind it; what to watch for and what to answer are given as bytes.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

Verdict = Literal["forward", "cut", "swallow", "cut after"] | bytes
"""What happens to the data that a trap saw: it is passed on; it is not, and the connection is reset; it is passed
nowhere; it is passed on and then the connection is reset; or it is not passed on and answered with these bytes."""

Show = Callable[[str, str, str, float], None]
"""Prints one cell of a fault matrix: fault, point, what happened, seconds."""

_CHUNK: Final = 1 << 16


@dataclass
class Trap:
    """Waits for bytes of one direction.

    Attributes:
        side: `request` goes to the server, `response` to the client.
        pattern: Searched in each piece of data.
        act: Called for each hit; says what happens to the data.
        hits: How often it may go off.
        after: For responses: what the connection's last request must have begun with.
    """

    side: Literal["request", "response"]
    pattern: re.Pattern[bytes]
    act: Callable[[], Verdict]
    hits: int = 1
    after: re.Pattern[bytes] = re.compile(b"")
    sprung: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def spring(self, side: str, data: bytes, last_request: bytes) -> bool:
        """Whether this data sets it off."""
        if side != self.side or not self.pattern.search(data) or not self.after.match(last_request):
            return False
        with self._lock:
            if self.sprung >= self.hits:
                return False
            self.sprung += 1
        return True


class FaultProxy:
    """Forwards connections to a server until told otherwise.

    Attributes:
        port: Where clients connect.
        traps: Watched in order; the first that goes off decides.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.traps: list[Trap] = []
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_all(self) -> None:
        """Reset every open connection; new ones are taken."""
        for connection in list(self._open):
            _reset(connection)

    def close(self) -> None:
        """Take no more connections, and end those that are open."""
        self._server.close()
        self.cut_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(self._target, timeout=10)
            except OSError:
                _reset(client)
                continue
            upstream.settimeout(None)
            _Link(self, client, upstream).start()

    def opened(self, *sockets: socket.socket) -> None:
        """Remember connections, to cut them."""
        self._open.update(sockets)

    def closed(self, *sockets: socket.socket) -> None:
        """Forget connections."""
        self._open.difference_update(sockets)


class _Link:
    """One client's connection and its counterpart."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, upstream: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._upstream = upstream
        self._last_request = b""

    def start(self) -> None:
        self._proxy.opened(self._client, self._upstream)
        for side, source, sink in (
            ("request", self._client, self._upstream),
            ("response", self._upstream, self._client),
        ):
            threading.Thread(target=self._pump, args=(side, source, sink), daemon=True).start()

    def _pump(self, side: str, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(_CHUNK):
                if side == "request":
                    self._last_request = data
                if not self._pass(side, data, sink):
                    break
        except OSError:
            pass
        _end(sink)
        self._proxy.closed(source)

    def _pass(self, side: str, data: bytes, sink: socket.socket) -> bool:
        trap = next((trap for trap in self._proxy.traps if trap.spring(side, data, self._last_request)), None)
        verdict = "forward" if trap is None else trap.act()
        if isinstance(verdict, bytes):
            self._client.sendall(verdict)
            return False
        if verdict in ("forward", "cut after"):
            sink.sendall(data)
        if verdict in ("cut", "cut after"):
            _reset(self._client)
            return False
        return True


def _reset(connection: socket.socket) -> None:
    """Close so that the other side sees a reset and not an orderly end."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)
        connection.close()
    except OSError:
        return


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
