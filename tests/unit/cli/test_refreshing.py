"""`pgtrickle refresh` lets a refresh that runs end first: both would do the same work."""

import subprocess
import sys

import dagster as dg
import pytest

from pgtrickle_assets.assets.processes import PROCESS_TAG
from pgtrickle_assets.cli.refreshing import _wait_for_refreshes
from pgtrickle_assets.control.owner import process, this_process


def start(instance, status, mark, job="refresh"):
    run = dg.DagsterRun(job_name=job, status=status, tags={PROCESS_TAG: mark} if mark else {})
    instance.add_run(run)
    return run


def test_it_waits_until_the_running_refresh_has_ended():
    with dg.DagsterInstance.ephemeral() as instance:
        run = start(instance, dg.DagsterRunStatus.STARTED, this_process())
        said = []

        def report(text):
            said.append(text)
            instance.report_run_canceled(run)

        _wait_for_refreshes(instance, report)
        assert said == [f"Waiting for run {run.run_id} ..."]


@pytest.mark.parametrize(("mark", "job"), [(None, "refresh"), (this_process(), "verify")])
def test_it_waits_neither_for_what_no_process_has_taken_up_nor_for_other_work(mark, job):
    with dg.DagsterInstance.ephemeral() as instance:
        start(instance, dg.DagsterRunStatus.STARTED, mark, job)
        _wait_for_refreshes(instance, pytest.fail)


def test_it_does_not_wait_for_a_run_whose_process_is_gone():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = process(child.pid)
    child.communicate()
    with dg.DagsterInstance.ephemeral() as instance:
        start(instance, dg.DagsterRunStatus.STARTED, mark)
        _wait_for_refreshes(instance, pytest.fail)
