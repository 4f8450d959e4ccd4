import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services.postgres import EmbeddedPostgres
from pgtrickle_assets.services.serverfiles import postmaster_of

pytestmark = pytest.mark.postgres
UNSAFE = {"fsync": "off", "max_connections": "20", "shared_buffers": "16MB"}

START = """
import sys, time
from pathlib import Path
from pgtrickle_assets.services.postgres import EmbeddedPostgres
options = {"fsync": "off", "max_connections": "20", "shared_buffers": "16MB"}
print(EmbeddedPostgres(Path(sys.argv[1]), options=options).start(), flush=True)
if len(sys.argv) > 2: time.sleep(60)
"""


@pytest.fixture
def server(tmp_path):
    made = EmbeddedPostgres(tmp_path / "pg", options=UNSAFE)
    yield made
    made.stop()


def query(dsn: str, text: str):
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(text).fetchone()


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_the_server_speaks_utf8_by_code_point_in_utc_with_logical_wal(postgres_server):
    dsn = postgres_server.dsn()
    row = query(
        dsn,
        "SELECT current_setting('server_encoding'), 'a' < 'B', upper('é'), current_setting('wal_level'), "
        "current_setting('TimeZone'), current_setting('lc_messages')",
    )
    assert row == ("UTF8", False, "É", "logical", "UTC", "C")


def test_the_server_is_on_loopback_only_and_wants_the_password(postgres_server):
    dsn = postgres_server.dsn()
    row = query(dsn, "SELECT current_setting('listen_addresses'), current_setting('unix_socket_directories')")
    assert row == ("127.0.0.1", "")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn.replace(postgres_server.password(), "wrong"))
    assert (postgres_server.data_dir / "password").stat().st_mode & 0o077 == 0


def test_the_server_never_runs_as_root(postgres_server):
    running = postgres_server.running()
    assert running is not None
    assert Path(f"/proc/{running.pid}").stat().st_uid != 0


def test_a_second_start_finds_the_running_server(server):
    dsn = server.start()
    before = server.running()
    assert EmbeddedPostgres(server.data_dir, options=UNSAFE).start() == dsn
    assert server.running() == before


def test_data_and_address_stay_over_a_restart(server):
    dsn = server.start()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS n")
    server.stop()
    assert server.running() is None
    assert server.start() == dsn
    assert query(dsn, "SELECT n FROM t") == (1,)


def test_a_lost_password_file_is_not_taken_for_a_server_that_never_was(server):
    with pytest.raises(ServiceError, match="holds no embedded PostgreSQL yet"):
        server.password()
    server.start()
    server.stop()
    (server.data_dir / "password").unlink()
    with pytest.raises(ServiceError, match="has lost its password file"):
        server.dsn()


def test_the_server_survives_the_kill_of_its_starter(server):
    server.data_dir.mkdir()
    starter = subprocess.Popen(
        [sys.executable, "-c", START, str(server.data_dir), "stay"], stdout=subprocess.PIPE, text=True
    )
    dsn = starter.stdout.readline().strip()
    starter.kill()
    starter.wait()
    assert query(dsn, "SELECT 1") == (1,)
    assert server.start() == dsn


def test_committed_data_survives_the_kill_of_the_server(server):
    dsn = server.start()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS n")
    pid = server.running().pid
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert server.running() is None
    dsn = server.start()
    assert server.running().pid != pid
    assert query(dsn, "SELECT n FROM t") == (7,)


def test_a_pid_file_left_by_a_crash_whose_number_is_in_use_does_not_stop_a_start(server):
    server.start()
    pid_file = server.pgdata / "postmaster.pid"
    text = pid_file.read_text()
    pid = server.running().pid
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    owner = server.pgdata.stat()
    pid_file.write_text(text.replace(str(pid), str(os.getpid()), 1))
    os.chown(pid_file, owner.st_uid, owner.st_gid)
    assert query(server.start(), "SELECT 1") == (1,)


def test_a_port_taken_by_another_program_is_changed(server):
    server.start()
    port = server.port()
    server.stop()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        dsn = server.start()
        assert server.port() != port
        assert query(dsn, "SELECT 1") == (1,)


def test_processes_that_start_at_once_share_one_server(server):
    server.data_dir.mkdir()

    def start(_: int) -> str:
        command = [sys.executable, "-c", START, str(server.data_dir)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(start, range(4)))
    assert len(found) == 1
    assert query(found.pop(), "SELECT 1") == (1,)


def test_an_interrupted_initialization_is_done_again(server):
    (server.data_dir / "pgdata.new").mkdir(parents=True)
    (server.data_dir / "pgdata.new" / "PG_VERSION").write_text("18")
    (server.data_dir / "password.new").write_text("half")
    assert query(server.start(), "SELECT 1") == (1,)


def test_a_foreign_data_directory_is_left_alone(server):
    server.pgdata.mkdir(parents=True)
    (server.pgdata / "mine").write_text("precious")
    with pytest.raises(ServiceError, match="not a complete PostgreSQL data directory"):
        server.start()
    assert (server.pgdata / "mine").read_text() == "precious"


def test_a_long_path_is_no_problem(tmp_path):
    server = EmbeddedPostgres(tmp_path / ("long " * 30).strip() / ("x" * 100), options=UNSAFE)
    try:
        assert query(server.start(), "SELECT 1") == (1,)
    finally:
        server.stop()


def test_a_setting_that_the_server_refuses_is_reported_with_its_log(tmp_path):
    server = EmbeddedPostgres(tmp_path / "pg", options={**UNSAFE, "no_such_setting": "1"})
    with pytest.raises(ServiceError, match="no_such_setting") as caught:
        server.start()
    assert "\n" not in str(caught.value)
    assert postmaster_of(server.pgdata) is None


def test_stopping_what_does_not_run_does_nothing(tmp_path):
    server = EmbeddedPostgres(tmp_path / "pg")
    server.stop()
    assert server.running() is None


def test_databases_with_any_name_are_made_once_and_dropped(postgres_server):
    name = 'a "quoted" naïve % name'
    dsn = postgres_server.create_database(name)
    assert postgres_server.create_database(name) == dsn
    assert query(dsn, "SELECT current_database()") == (name,)
    postgres_server.drop_database(name)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)


def test_a_database_is_made_by_one_of_many_at_once(postgres_server):
    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(postgres_server.create_database, ["same"] * 6))) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_an_ordinary_user_can_run_it(tmp_path_factory):
    import pwd
    import tempfile

    user = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, user.pw_uid, user.pw_gid)
        Path(folder).chmod(0o700)
        code = START + "\nEmbeddedPostgres(Path(sys.argv[1])).stop()"
        # Its interpreter may be out of that user's reach, which is not what is tested here: keep the right to read it.
        from pgtrickle_assets.services import drop_root

        command = [sys.executable, "-I", drop_root.__file__, str(user.pw_uid), str(user.pw_gid)]
        command += [str(drop_root.CAP_DAC_READ_SEARCH), sys.executable, "-c", code, f"{folder}/pg"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")
        assert done.returncode == 0, done.stderr
        assert (Path(folder) / "pg" / "pgdata").stat().st_uid == user.pw_uid
