"""A Spark Connect server: one warm Spark that many runs share."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services import leash
from pgtrickle_assets.services.spark import (
    prepare_environment,
    scratch_folder,
    session_configuration,
    spark_session,
    static_configuration,
)

if TYPE_CHECKING:
    from types import TracebackType

    from pgtrickle_assets.settings import Settings

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
# A dead server is noticed at once; this bounds only a live one on a busy machine.
_START_SECONDS = 300.0


class SparkConnectServer:
    """A Spark Connect server in a process of its own, on the loopback interface, behind a generated token.

    It ends with the process that started it, however that ends.

    Args:
        settings: As for a local session; `spark_master` is the master that the server runs on.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._token = secrets.token_hex(24)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.log_path = scratch_folder(settings) / "connect-server.log"

    @property
    def remote(self) -> SecretStr:
        """Value for the setting `spark_remote` of those who use the server; holds the token."""
        # The host must read "localhost": pyspark sends a token without TLS only to a host of that name.
        return SecretStr(f"sc://localhost:{self._port}/;token={self._token}")

    def start(self) -> None:
        """Start the server; returns at once.

        Raises:
            ServiceError: No suitable Java, or PySpark is not installed.
        """
        if self._process is not None:
            return
        self._port = _free_port()
        environment = prepare_environment(self._settings)
        # In the environment, not among the arguments, which every user of the machine can list.
        environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = self._token
        environment["SPARK_CONNECT_MODE"] = "0"
        environment.pop("SPARK_REMOTE", None)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own script and PySpark's
                [sys.executable, "-I", str(Path(leash.__file__)), *self._command()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def wait(self, seconds: float = _START_SECONDS) -> None:
        """Wait until the server takes connections.

        Raises:
            ServiceError: It ended, or `seconds` passed; the message has the log's last line.
        """
        deadline = time.monotonic() + seconds
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return
            time.sleep(0.1)
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        self.stop()
        raise ServiceError(
            f"The Spark Connect server does not start: {lines[-1] if lines else 'it wrote no log'}",
            hint=f"See {self.log_path}.",
        )

    def warm_up(self) -> None:
        """Run one small query through every path that runs use, so that the first run does not pay for it.

        Raises:
            ServiceError: The server does not answer.
        """
        import pyarrow

        session = spark_session(self._settings.model_copy(update={"spark_remote": self.remote}))
        try:
            frame = session.createDataFrame(pyarrow.table({"n": [1, 2]}))
            frame.mapInArrow(lambda batches: batches, frame.schema).groupBy("n").count().toArrow()
        finally:
            session.stop()

    def running(self) -> bool:
        """Whether the server's process lives."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Stop the server and wait until its JVM is gone; do nothing when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        # Closing the leash lets it end the JVM, first politely.
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(timeout=leash.GRACE_SECONDS + 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> SparkConnectServer:
        self.start()
        self.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            raise ServiceError("PySpark is not installed.", hint="Install it: pip install pyspark.")
        configuration = {
            "spark.master": self._settings.spark_master,
            **static_configuration(self._settings),
            **session_configuration(self._settings),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            **self._settings.spark_conf,
        }
        arguments = [part for key, value in configuration.items() for part in ("--conf", f"{key}={value}")]
        submit = Path(found.origin).parent / "bin" / "spark-submit"
        return [str(submit), "--class", _CLASS, "--name", "pgtrickle", *arguments]


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
