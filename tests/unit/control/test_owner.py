import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgtrickle_assets.control.owner import is_certainly_dead, this_process

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_this_process_is_not_dead():
    assert not is_certainly_dead(this_process())


def test_a_process_that_ended_is_dead():
    code = "from pgtrickle_assets.control.owner import this_process; print(this_process())"
    owner = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert is_certainly_dead(owner)


def test_a_zombie_is_dead():
    code = "from pgtrickle_assets.control.owner import this_process; print(this_process(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    owner = child.stdout.readline().strip()
    assert not is_certainly_dead(owner)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_certainly_dead(owner)
    child.communicate()


def test_a_reused_process_id_is_not_mistaken_for_the_owner():
    host, namespace, pid, started = this_process().split("/")
    assert is_certainly_dead(f"{host}/{namespace}/{pid}/{int(started) - 1}")


@pytest.mark.parametrize("owner", ["", "nobody", "elsewhere/boot/1/2", "nobody, was h/n/1/2", "a/b/c/d/e"])
def test_a_process_elsewhere_is_never_certainly_dead(owner):
    assert not is_certainly_dead(owner)


def test_a_forked_child_has_an_identity_of_its_own():
    mine = this_process()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, this_process().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        assert stream.read() != mine
