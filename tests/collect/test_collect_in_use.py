"""Who has the GPUs open while the library refuses to start after an upgrade of the driver."""

from __future__ import annotations

import os

import pytest
from fake_nvml.scenario import h100
from owner_trees import write

from gpumon.collect import in_use, nvml
from gpumon.collect.in_use import REFRESH_SECONDS, OpenGpus

NAMES = {1000: "alice", 1001: "bob"}


class Host:
    """Recorded processes; a link in `fd` may lead to what this machine does not have."""

    def __init__(self, proc):
        self.proc = proc
        self.open_gpus = OpenGpus(lambda uid: NAMES.get(uid, f"uid:{uid}"), str(proc))
        (proc / "meminfo").touch()

    def run(self, pid, *opened, uid=1000, comm="python"):
        write(self.proc, pid, uid=uid, comm=comm)
        (self.proc / str(pid) / "fd").mkdir()
        for number, path in enumerate(("/dev/null", *opened)):
            os.symlink(path, self.proc / str(pid) / "fd" / str(number))

    def told(self, now=0.0):
        errors: list[str] = []
        self.open_gpus.tell(now, errors)
        (sentence,) = errors
        return sentence


@pytest.fixture
def host_of_jobs(tmp_path):
    return Host(tmp_path)


def test_processes_that_have_a_gpu_open_are_counted_and_named_without_their_memory(host_of_jobs):
    host_of_jobs.run(500, "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia0", "/dev/nvidia-uvm")
    host_of_jobs.run(501, "/dev/nvidia0", "/dev/nvidia10 (deleted)", uid=1001)
    host_of_jobs.run(502, "/dev/nvidia2", uid=5)
    host_of_jobs.run(503, "/dev/nvidiactl", "/home/x/dev/nvidia0")  # neither is a GPU
    host_of_jobs.run(504, "/dev/nvidia0", comm="nvidia-persiste", uid=0)
    assert host_of_jobs.told() == (
        "GPUs are in use all the same, processes have them open: "
        "/dev/nvidia0: 2 processes (alice, bob); /dev/nvidia2: 1 process (uid:5); "
        "/dev/nvidia10: 1 process (bob). How much memory they hold can't be told."
    )


def test_where_nobody_is_seen_no_gpu_is_called_free(host_of_jobs):
    host_of_jobs.run(500)
    assert "that is not to say that the GPUs are free" in host_of_jobs.told()
    assert "idle" not in host_of_jobs.told()


def test_processes_that_can_not_be_looked_at_are_counted(host_of_jobs, monkeypatch):
    host_of_jobs.run(500, "/dev/nvidia0")
    host_of_jobs.run(501, "/dev/nvidia0")
    look = os.scandir

    def refuse(path):
        if "/501/" in path:
            raise PermissionError
        return look(path)

    monkeypatch.setattr(os, "scandir", refuse)
    told = host_of_jobs.told()
    assert "/dev/nvidia0: 1 process (alice)" in told
    assert told.endswith("1 process could not be looked at.")


def test_a_process_that_ends_meanwhile_costs_nothing(host_of_jobs):
    host_of_jobs.run(500, "/dev/nvidia0")
    (host_of_jobs.proc / "501").mkdir()
    assert "/dev/nvidia0: 1 process (alice)" in host_of_jobs.told()


def test_a_host_with_too_many_processes_is_looked_at_in_part_and_that_is_said(
    host_of_jobs, monkeypatch
):
    monkeypatch.setattr(in_use, "_PATIENCE_SECONDS", -1.0)
    for pid in range(500, 510):
        host_of_jobs.run(pid, "/dev/nvidia0")
    assert host_of_jobs.told().endswith("10 processes could not be looked at.")


def test_it_is_looked_at_once_a_minute_and_told_in_each_sample(host_of_jobs):
    assert "No process" in host_of_jobs.told(100.0)
    host_of_jobs.run(500, "/dev/nvidia0")
    assert "No process" in host_of_jobs.told(100.0 + REFRESH_SECONDS - 1)
    assert "1 process (alice)" in host_of_jobs.told(100.0 + REFRESH_SECONDS)


def test_many_names_are_cut_visibly(host_of_jobs):
    for number in range(7):
        host_of_jobs.run(500 + number, "/dev/nvidia0", uid=2000 + number)
    assert "7 processes (uid:2000, uid:2001, uid:2002, uid:2003, 3 more)" in host_of_jobs.told()


def test_only_after_an_upgrade_of_the_driver_are_the_processes_of_the_host_looked_at(host):
    host.start(h100(0))
    assert host.sample().errors == []
    host.scenario.fail("nvmlDeviceGetCount", nvml.UNKNOWN)
    host.scenario.fail("nvmlInit", nvml.DRIVER_NOT_LOADED)
    assert len(host.sample(later=61).errors) == 1
    host.scenario.heal()
    host.scenario.fail("nvmlInit", nvml.LIB_RM_VERSION_MISMATCH)
    snapshot = host.sample(later=61)
    assert (snapshot.gpu_count, snapshot.error_kind) == (None, "version mismatch")
    upgraded, open_gpus = snapshot.errors
    assert "reboot this host" in upgraded
    assert "has a GPU open" in open_gpus or "GPUs are in use" in open_gpus
