"""`pgtrickle up`: the embedded PostgreSQL, a warm Spark, the Dagster UI and its daemon, until they are stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import yaml

from pgtrickle_assets.cli.children import Children
from pgtrickle_assets.cli.runs import CODE_LOCATION
from pgtrickle_assets.cli.warm_spark import REMOTE_VARIABLE, published
from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services.spark_connect import SparkConnectServer

if TYPE_CHECKING:
    from pgtrickle_assets.cli.workspace import Workspace

# A process that ends is noticed at once; this only bounds a slow machine.
_READY_SECONDS = 600.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Serving:
    """What runs.

    Attributes:
        url: The Dagster UI.
        logs: Folder with the logs of all processes.
        check: Raises a `ServiceError` when one of them has ended.
    """

    url: str
    logs: Path
    check: Callable[[], None]

    def wait(self) -> None:
        """Waits until a process ends or a signal comes."""
        while True:
            self.check()
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def serving(
    workspace: Workspace, *, host: str, port: int, warm_spark: bool, report: Callable[[str], None] = lambda _: None
) -> Iterator[Serving]:
    """Runs everything while the block runs; on its end all of it is stopped, the embedded PostgreSQL last.

    Args:
        workspace: The project.
        host: Address of the UI.
        port: Port of the UI.
        warm_spark: Keep a Spark Connect server that runs attach to.
        report: Told what is being waited for.

    Raises:
        ServiceError: When the port is taken or a process does not start.
    """
    _require_free(host, port)
    with contextlib.ExitStack() as stack:
        report("Starting the databases ...")
        if workspace.connections.needs_embedded:
            stack.callback(workspace.connections.embedded.stop)
        home = workspace.prepare_dagster()
        environment = dict(os.environ)
        spark: SparkConnectServer | None = None
        if warm_spark:
            spark = SparkConnectServer(workspace.settings)
            stack.callback(spark.stop)
            spark.start()
            environment[REMOTE_VARIABLE] = spark.remote.get_secret_value()
        report("Reading the sources ...")
        with workspace.session() as session:
            session.synced()
        children = stack.enter_context(Children(workspace.connections.home / "logs"))
        _start_dagster(children, home, environment, host, port)
        url = f"http://{host}:{port}"
        report("Starting the Dagster UI ...")
        _wait_for(url, children)
        if spark is not None:
            report("Starting Spark ...")
            spark.wait()
            stack.enter_context(published(workspace.connections.home, spark.remote))
        yield Serving(url, children.logs, _checker(children, spark))


def _start_dagster(children: Children, home: Path, environment: dict[str, str], host: str, port: int) -> None:
    """One code server for UI and daemon, so that the project is loaded once."""
    code_port = _free_port()
    python = [sys.executable, "-m", "dagster"]
    location = ["-m", "pgtrickle_assets.definitions", "-a", "defs", "--location-name", CODE_LOCATION]
    children.start(
        "code server",
        [*python, "code-server", "start", *location, "-h", "127.0.0.1", "-p", str(code_port)],
        environment,
    )
    file = home / "workspace.yaml"
    server = {"host": "127.0.0.1", "port": code_port, "location_name": CODE_LOCATION}
    file.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}), encoding="utf-8")
    _wait_for_port(code_port, children)
    children.start(
        "web server",
        [sys.executable, "-m", "dagster_webserver", "-w", str(file), "-h", host, "-p", str(port)],
        environment,
    )
    children.start("daemon", [sys.executable, "-m", "dagster._daemon", "run", "-w", str(file)], environment)


def _checker(children: Children, spark: SparkConnectServer | None) -> Callable[[], None]:
    def check() -> None:
        children.check()
        if spark is not None and not spark.running():
            raise ServiceError("The Spark Connect server has ended.", hint="Start `pgtrickle up` again.")

    return check


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Makes SIGTERM end the block like Ctrl-C does, so that what it started is stopped."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _require_free(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServiceError(
                f"Port {port} on {host} cannot be used: {error.strerror}.", hint="Choose another with --port."
            ) from error


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_port(port: int, children: Children) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    _until(answers, children, f"port {port}")


def _wait_for(url: str, children: Children) -> None:
    def answers() -> bool:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{url}/server_info", timeout=2).close()  # noqa: S310 - our own http address
            return True
        return False

    _until(answers, children, url)


def _until(condition: Callable[[], bool], children: Children, what: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not condition():
        children.check()
        if time.monotonic() > deadline:
            raise ServiceError(f"Nothing answers at {what} after {_READY_SECONDS:.0f} s.", hint="See the logs.")
        time.sleep(_POLL_SECONDS)
