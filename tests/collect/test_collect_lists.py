"""The process lists of a GPU and their shares."""

from __future__ import annotations

import os

import pytest
from fake_nvml.scenario import MIB, h100

from gpumon.collect import nvml, procfs
from gpumon.collect.nvml_processes import UNRELIABLE

ME = os.getpid()


def rows(gpu):
    return [(row.pid, row.kinds, row.gpu_memory_used_mib) for row in gpu.processes]


@pytest.mark.parametrize("driver", ["470", "525", "535", "550", "575"])
def test_every_drivers_version_of_the_list_is_read(make_host, driver):
    host = make_host(driver=driver)
    host.start(h100(0)).process(0, ME, 2048)
    assert rows(host.gpu()) == [(ME, ["compute"], 2048)]


def test_the_oldest_version_of_the_list_is_read_where_the_driver_has_no_other(make_host):
    missing = tuple(
        f"nvmlDeviceGet{kind}RunningProcesses_v{version}"
        for kind in ("Compute", "Graphics", "MPSCompute")
        for version in (2, 3)
    )
    host = make_host(missing=missing)
    host.start(h100(0)).process(0, ME, 2048)
    assert rows(host.gpu()) == [(ME, ["compute"], 2048)]


def test_a_version_that_answers_function_not_found_is_passed_over(host):
    host.start(h100(0)).process(0, ME, 2048)
    host.scenario.fail("nvmlDeviceGet*RunningProcesses_v3", nvml.FUNCTION_NOT_FOUND)
    assert rows(host.gpu()) == [(ME, ["compute"], 2048)]


def test_without_any_version_the_processes_are_unknown_and_not_none(host):
    host.start(h100(0)).fail("nvmlDeviceGetComputeRunningProcesses", nvml.FUNCTION_NOT_FOUND)
    gpu = host.gpu()
    assert gpu.processes is None
    assert gpu.unknown["processes"] == "not offered by this driver"


@pytest.mark.parametrize("layout", ["535", "v1"])
def test_scrambled_records_make_the_whole_list_unreliable(host, spawn, layout):
    host.start(h100(0)).values["process_layout"] = layout
    for _ in range(3):
        host.scenario.process(0, spawn(["sleep", "600"]).pid, 6200)
    gpu = host.gpu()
    assert gpu.processes is None
    assert gpu.unknown["processes"] == UNRELIABLE.reason


@pytest.mark.parametrize("pid", [0, procfs.pid_max() + 1, 4294967295])
def test_a_pid_that_cannot_be_makes_the_list_unreliable(host, pid):
    host.start(h100(0)).process(0, ME, 100)
    host.scenario.gpus[0].lines.append(f"process = {pid} memory=1MiB")
    assert host.gpu().unknown["processes"] == UNRELIABLE.reason


def test_more_memory_than_the_card_has_makes_the_list_unreliable(host):
    host.start(h100(0)).process(0, ME, 100)
    host.scenario.gpus[0].lines.append("process = 1 memory=90000MiB")
    assert host.gpu().unknown["processes"] == UNRELIABLE.reason


def test_memory_that_the_driver_does_not_tell_is_unknown_and_the_row_stays(host):
    host.start(h100(0)).process(0, ME, None)
    assert rows(host.gpu()) == [(ME, ["compute"], None)]


def test_a_process_in_several_lists_is_one_row_and_its_memory_counts_once(host, sleeper):
    host.start(h100(0)).process(0, ME, 2048, kind="compute+graphics")
    host.scenario.process(0, sleeper, 100, kind="mps")
    assert rows(host.gpu()) == [(ME, ["compute", "graphics"], 2048), (sleeper, ["mps"], 100)]


def test_memory_known_from_one_list_only_is_known(host):
    host.start(h100(0)).process(0, ME, 2048, kind="compute")
    host.scenario.process(0, ME, None, kind="graphics")
    assert rows(host.gpu()) == [(ME, ["compute", "graphics"], 2048)]


def test_memory_in_use_is_the_devices_and_not_the_sum_of_its_processes(host):
    host.start(h100(0)).process(0, ME, 5 * 1024)
    host.scenario.gpus[0]["memory.used"] = 58 * 1024 * MIB
    gpu = host.gpu()
    assert (gpu.memory_used_mib, rows(gpu)) == (58 * 1024, [(ME, ["compute"], 5 * 1024)])


def test_a_gpu_without_a_graphics_list_shows_the_other_rows(host):
    host.start(h100(0)).process(0, ME, 10)
    host.scenario.fail("nvmlDeviceGetGraphicsRunningProcesses", nvml.NOT_SUPPORTED)
    gpu = host.gpu()
    assert rows(gpu) == [(ME, ["compute"], 10)]
    assert "processes" not in gpu.unknown


def test_a_list_that_is_partly_unreadable_says_so_and_is_never_empty(host):
    host.start(h100(0)).fail("nvmlDeviceGetGraphicsRunningProcesses", nvml.UNKNOWN)
    gpu = host.gpu()
    assert gpu.processes is None
    host.scenario.process(0, ME, 10)
    gpu = host.gpu()
    assert rows(gpu) == [(ME, ["compute"], 10)]
    assert gpu.unknown["processes"] == (
        "the graphics list could not be read: unknown error of the driver"
    )


def test_a_list_that_grows_while_it_is_read_is_read_again(host):
    host.start(h100(0)).process(0, ME, 10)
    host.scenario.fail("nvmlDeviceGet*RunningProcesses", nvml.INSUFFICIENT_SIZE, times=2, on="fill")
    assert rows(host.gpu()) == [(ME, ["compute"], 10)]


def test_a_list_that_grows_for_ever_is_unknown_after_a_few_attempts(host):
    host.start(h100(0)).process(0, ME, 10)
    host.scenario.fail("nvmlDeviceGet*RunningProcesses", nvml.INSUFFICIENT_SIZE, on="fill")
    before = host.calls()
    gpu = host.gpu()
    assert gpu.processes is None
    assert gpu.unknown["processes"].startswith("more entries at each attempt")
    assert (host.calls() - before)["nvmlDeviceGetComputeRunningProcesses_v3", 0] <= 5


def test_a_list_longer_than_the_first_buffer_is_read_whole(host):
    host.start(h100(0))
    for pid in range(1, 301):
        host.scenario.process(0, pid, 1)
    assert [row.pid for row in host.gpu().processes] == list(range(1, 301))


def test_the_sm_share_of_a_process_is_read_and_an_idle_one_is_at_zero(host, sleeper):
    host.start(h100(0)).process(0, ME, 10, sm=70)
    host.scenario.process(0, sleeper, 10)
    assert [row.sm_utilization_percent for row in host.gpu().processes] == [70.0, 0.0]


def test_no_samples_means_idle_and_no_warning(host):
    host.start(h100(0)).process(0, ME, 10)
    snapshot = host.sample()
    assert [row.sm_utilization_percent for row in snapshot.gpus[0].processes] == [0.0]
    assert snapshot.errors == []


@pytest.mark.parametrize("code", [nvml.NOT_SUPPORTED, nvml.UNKNOWN])
def test_a_share_that_cannot_be_read_is_unknown(host, code):
    host.start(h100(0)).process(0, ME, 10, sm=70)
    host.scenario.fail("nvmlDeviceGetProcessUtilization", code)
    assert [row.sm_utilization_percent for row in host.gpu().processes] == [None]


def test_absurd_shares_are_unknown_and_old_ones_do_not_count(host, sleeper, spawn):
    zeroed = spawn(["sleep", "600"]).pid
    host.start(h100(0))
    for pid in (ME, sleeper, zeroed):
        host.scenario.process(0, pid, 10)
    host.scenario.sample(0, ME, 4294967)
    host.scenario.sample(0, sleeper, 55, "age=600s")
    host.scenario.sample(0, 0, 0, "time=0 repeat=100")
    shares = {row.pid: row.sm_utilization_percent for row in host.gpu().processes}
    assert shares == {ME: None, sleeper: 0.0, zeroed: 0.0}


def test_a_sample_from_outside_the_interval_is_no_answer_for_its_process(host, sleeper):
    host.start(h100(0)).process(0, sleeper, 10)
    host.scenario.sample(0, sleeper, 55, "time=0")
    assert host.gpu().processes[0].sm_utilization_percent is None
