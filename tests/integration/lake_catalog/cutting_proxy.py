"""A TCP proxy before PostgreSQL that cuts the connection at COMMIT, before or after the server has done it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing
from typing import Literal

_COMMIT = b"COMMIT"


class CuttingProxy:
    """Forwards until `cut_next` is set; then the next COMMIT of any connection ends it.

    Attributes:
        cut_next: `before`: the server never sees the COMMIT. `after`: it does, the client never hears of it.
        cuts: How often it happened.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.cut_next: Literal["", "before", "after"] = ""
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._target)
            threading.Thread(target=self._to_server, args=(client, upstream), daemon=True).start()
            threading.Thread(target=self._to_client, args=(client, upstream), daemon=True).start()

    def _to_server(self, client: socket.socket, upstream: socket.socket) -> None:
        with closing(client), closing(upstream):
            while data := _receive(client):
                if self.cut_next and _COMMIT in data:
                    how, self.cut_next = self.cut_next, ""
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)
                    if how == "after":
                        upstream.sendall(data)
                        time.sleep(0.5)
                    # Closing alone leaves the socket open while the other thread waits for it.
                    upstream.shutdown(socket.SHUT_RDWR)
                    return
                upstream.sendall(data)

    def _to_client(self, client: socket.socket, upstream: socket.socket) -> None:
        while data := _receive(upstream):
            try:
                client.sendall(data)
            except OSError:
                return


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""
