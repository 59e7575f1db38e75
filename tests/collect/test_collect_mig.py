"""MIG: instances, their rows, and what the parent can't say."""

from __future__ import annotations

import os
import pwd

import pytest
from fake_nvml.scenario import h100, mig, rtx

from gpumon.collect import nvml
from gpumon.states import is_held
from gpumon.summary import summarize

ME = os.getpid()


def test_instances_are_listed_with_their_own_memory_and_processes(host):
    host.start(mig(h100(0), "1g.10gb", "3g.40gb")).process(0, ME, 500, mig=0)
    gpu = host.gpu()
    assert gpu.mig_mode is True
    first, second = gpu.mig
    assert (first.index, first.name, first.uuid) == (
        0,
        "1g.10gb",
        host.scenario.gpus[0].mig[0]["uuid"],
    )
    assert (first.gpu_instance_id, first.compute_instance_id) == (7, 0)
    assert (first.memory_total_mib, first.memory_used_mib, first.memory_reserved_mib) == (
        9856,
        500,
        12,
    )
    assert [(row.pid, row.user) for row in first.processes] == [
        (ME, pwd.getpwuid(os.getuid()).pw_name)
    ]
    assert (second.name, second.processes) == ("3g.40gb", [])
    assert gpu.processes == []  # what runs in instances is theirs


def test_the_parent_of_instances_has_no_utilization_and_says_why(host):
    host.start(mig(h100(0), "1g.10gb"))
    host.scenario.gpus[0]["utilization.gpu"] = 0  # as some drivers say for a busy one
    host.scenario.gpus[0]["utilization.memory"] = 0
    gpu = host.gpu()
    for field in ("utilization_percent", "memory_utilization_percent"):
        assert getattr(gpu, field) is None
        assert gpu.unknown[field] == "not available under MIG"
    assert gpu.power_draw_watts == 71.0


def test_what_runs_on_the_gpu_outside_instances_is_the_parents(host):
    host.start(mig(h100(0), "1g.10gb")).process(0, ME, 100)
    host.scenario.gpus[0].lines[-1] += " gi=4294967295 ci=4294967295"
    assert [row.pid for row in host.gpu().processes] == [ME]


@pytest.mark.parametrize(
    ("current", "pending", "expected"),
    [("off", "off", (False, None)), ("off", "on", (False, True)), ("on", "off", (True, False))],
)
def test_only_what_is_in_force_now_is_the_mode_and_a_change_is_told(
    host, current, pending, expected
):
    gpu = host.start(h100(0)).gpus[0]
    gpu["mig_mode"], gpu["mig_mode.pending"] = current, pending
    read = host.gpu()
    assert (read.mig_mode, read.mig_mode_pending) == expected
    assert (read.utilization_percent is None) == (expected[0] is True)


def test_a_gpu_that_knows_no_mig_has_an_unknown_mode_and_its_utilization(host):
    host.start(rtx(0))
    gpu = host.gpu()
    assert (gpu.mig_mode, gpu.utilization_percent, gpu.mig) == (None, 0, [])
    assert "mig" not in gpu.unknown


def test_a_gpu_whose_mig_mode_cannot_be_read_is_not_taken_for_one_without_instances(host):
    host.start(mig(h100(0), "1g.10gb")).fail("nvmlDeviceGetMigMode", nvml.UNKNOWN, gpu=0)
    snapshot = host.sample()
    assert snapshot.gpus[0].mig_mode is None
    assert snapshot.gpus[0].unknown["mig"] == "unknown error of the driver"
    assert is_held(summarize(snapshot).gpus[0]) is None
    host.scenario.heal()
    assert "mig" not in host.gpu(later=5).unknown


def test_process_shares_stay_where_mig_is_possible_but_off(host):
    host.start(h100(0)).process(0, ME, 10, sm=40)
    assert host.gpu().processes[0].sm_utilization_percent == 40.0


def test_a_deleted_instance_whose_handle_lives_on_is_dropped(host):
    host.start(mig(h100(0), "1g.10gb", "1g.10gb"))
    assert [instance.index for instance in host.gpu().mig] == [0, 1]
    host.scenario.fail("nvmlDeviceGetMemoryInfo", nvml.NOT_FOUND, gpu=0, mig=0)
    assert [instance.index for instance in host.gpu().mig] == [1]


def test_an_instance_that_fails_otherwise_keeps_its_row_with_the_reason(host):
    host.start(mig(h100(0), "1g.10gb", "1g.10gb"))
    host.scenario.fail("nvmlDeviceGetUUID", nvml.UNKNOWN, gpu=0, mig=0)
    broken, good = host.gpu().mig
    assert (broken.index, broken.error) == (0, "unknown error of the driver")
    assert (good.error, good.memory_used_mib) == (None, 0)


def test_an_instance_of_which_nothing_can_be_read_says_so(host):
    host.start(mig(h100(0), "1g.10gb")).fail("nvmlDeviceGetMemoryInfo", 999, gpu=0, mig=0)
    instance = host.gpu().mig[0]
    assert (instance.error, instance.memory_used_mib, instance.processes) == (None, None, [])
    host.scenario.fail("nvmlDeviceGetComputeRunningProcesses", 999, gpu=0, mig=0)
    instance = host.gpu().mig[0]
    assert instance.processes is None
    assert "unknown error of the driver" in instance.error


def test_instances_that_cannot_be_listed_are_not_an_unconfigured_gpu(host):
    host.start(mig(h100(0), "1g.10gb")).fail("nvmlDeviceGetMaxMigDeviceCount", 999, gpu=0)
    snapshot = host.sample()
    assert snapshot.gpus[0].unknown["mig"] == "unknown error of the driver"
    assert is_held(summarize(snapshot).gpus[0]) is None


def test_an_instances_profile_is_put_together_where_its_name_is_unknown(host):
    host.start(mig(h100(0), "2g.20gb"))
    host.scenario.gpus[0].mig[0]["name"] = b"\xf8"
    assert host.gpu().mig[0].name == "2g.20gb"


def test_what_never_changes_about_an_instance_is_asked_once(host):
    host.start(mig(h100(0), "1g.10gb", "3g.40gb"))
    before = host.calls()
    for _ in range(3):
        assert [instance.name for instance in host.gpu(later=5).mig] == ["1g.10gb", "3g.40gb"]
    asked = host.calls() - before
    assert asked["nvmlDeviceGetGpuInstanceId", 0] == asked["nvmlDeviceGetComputeInstanceId", 0] == 2
    assert asked["nvmlDeviceGetName", 0] == 3  # the GPU's and the two instances'


def test_a_new_instance_in_an_old_place_is_not_taken_for_the_old_one(host):
    host.start(mig(h100(0), "1g.10gb"))
    host.gpu()
    host.scenario.gpus[0] = mig(h100(0), "3g.40gb")
    host.scenario.gpus[0].mig[0]["uuid"] = "MIG-another"
    instance = host.gpu().mig[0]
    assert (instance.uuid, instance.name, instance.gpu_instance_id) == (
        "MIG-another",
        "3g.40gb",
        1,
    )


def test_mig_that_is_turned_on_under_a_running_agent_is_noticed_at_once(host):
    host.start(h100(0))
    assert host.gpu().mig_mode is False
    host.scenario.gpus[0] = mig(h100(0), "1g.10gb")
    gpu = host.gpu(later=5)
    assert gpu.mig_mode is True
    assert [instance.name for instance in gpu.mig] == ["1g.10gb"]
