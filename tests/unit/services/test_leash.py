import os
import subprocess
import sys
import time
from pathlib import Path

from pgtrickle_assets.services import leash

SCRIPT = str(Path(leash.__file__))


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", SCRIPT, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not is_alive(pid):
            return True
        time.sleep(0.02)
    return False


def test_the_exit_status_is_the_commands():
    process = start(sys.executable, "-c", "raise SystemExit(7)")
    assert process.wait(10) == 7


def test_the_command_ends_when_the_leash_is_let_go():
    process = start("/bin/sh", "-c", "echo $$; exec sleep 60")
    child = int(process.stdout.readline())
    process.stdin.close()
    process.wait(10)
    assert wait_until_gone(child)


def test_the_command_ends_when_its_starter_is_killed():
    code = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-I', sys.argv[1], '/bin/sh', '-c', 'echo $$; exec sleep 60'],"
        " stdin=subprocess.PIPE)\n"
        "time.sleep(60)"
    )
    starter = subprocess.Popen([sys.executable, "-c", code, SCRIPT], stdout=subprocess.PIPE, text=True)
    child = int(starter.stdout.readline())
    assert is_alive(child)
    starter.kill()
    starter.wait()
    assert wait_until_gone(child)


def test_ctrl_c_is_left_to_the_starter():
    process = start("/bin/sh", "-c", "echo $$; exec sleep 60")
    child = int(process.stdout.readline())
    os.kill(process.pid, 2)
    time.sleep(0.2)
    assert process.poll() is None
    assert is_alive(child)
    process.stdin.close()
    process.wait(10)
