import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services import serverfiles
from pgtrickle_assets.services.drop_root import CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
from pgtrickle_assets.services.filelock import file_lock
from pgtrickle_assets.services.serverfiles import (
    ServerUser,
    capability_to_reach,
    postmaster_of,
    read_postmaster_file,
    server_user,
)

OTHER = ServerUser("someone", 54321, 54321)


def write_pid_file(folder: Path, pid: int, *, lines: int = 8) -> None:
    content = [str(pid), str(folder), "1712346200", "5433", "", "127.0.0.1", "  123  456", "ready   "]
    (folder / "postmaster.pid").write_text("\n".join(content[:lines]) + "\n")


def test_a_complete_pid_file_tells_port_and_status(tmp_path):
    write_pid_file(tmp_path, 42)
    entry = read_postmaster_file(tmp_path)
    assert entry is not None
    assert (entry.pid, entry.port, entry.status) == (42, 5433, "ready")


@pytest.mark.parametrize("lines", [1, 3, 5])
def test_a_pid_file_of_a_starting_server_has_no_status(tmp_path, lines):
    write_pid_file(tmp_path, 42, lines=lines)
    entry = read_postmaster_file(tmp_path)
    assert entry is not None
    assert entry.status == ""


@pytest.mark.parametrize("text", ["", "rubbish\n", "\n\n"])
def test_an_unreadable_pid_file_counts_as_none(tmp_path, text):
    (tmp_path / "postmaster.pid").write_text(text)
    assert read_postmaster_file(tmp_path) is None
    assert postmaster_of(tmp_path) is None


def test_a_pid_that_now_belongs_to_another_program_is_no_server(tmp_path):
    write_pid_file(tmp_path, os.getpid())
    assert postmaster_of(tmp_path) is None


def test_a_pid_of_a_process_that_is_gone_is_no_server(tmp_path):
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    write_pid_file(tmp_path, int(child.stdout))
    assert postmaster_of(tmp_path) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="the rule is for root")
def test_root_runs_the_server_as_somebody_else(tmp_path):
    user = server_user(tmp_path / "missing")
    assert user is not None
    assert user.uid != 0


@pytest.mark.skipif(os.geteuid() == 0, reason="the rule is for ordinary users")
def test_an_ordinary_user_runs_the_server_itself(tmp_path):
    assert server_user(tmp_path) is None


def test_open_directories_need_no_capability():
    assert capability_to_reach(OTHER, [Path("/usr/bin")]) is None


def test_a_closed_directory_needs_the_smallest_capability_held(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for held, expected in (
        (1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH, CAP_DAC_READ_SEARCH),
        (1 << CAP_DAC_OVERRIDE, CAP_DAC_OVERRIDE),
    ):
        monkeypatch.setattr(serverfiles, "_effective_capabilities", lambda held=held: held)
        assert capability_to_reach(OTHER, [closed / "file"]) == expected


def test_a_closed_directory_without_capability_is_an_error_that_names_it(tmp_path, monkeypatch):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(serverfiles, "_effective_capabilities", lambda: 0)
    with pytest.raises(ServiceError, match="PGTRICKLE_HOME"):
        capability_to_reach(OTHER, [closed / "file"])


def test_a_lock_that_is_held_is_waited_for_only_so_long(tmp_path):
    path = tmp_path / "lock"
    with file_lock(path, seconds=1), pytest.raises(ServiceError, match="lock"), file_lock(path, seconds=0.1):
        pytest.fail("two holders")


def test_a_lock_of_a_killed_process_is_free(tmp_path):
    path = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path; from pgtrickle_assets.services.filelock import file_lock\n"
        "with file_lock(Path(sys.argv[1]), seconds=1): print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    child.stdout.readline()
    child.kill()
    child.communicate()
    with file_lock(path, seconds=1):
        pass
