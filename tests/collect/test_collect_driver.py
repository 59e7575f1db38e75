"""The driver as a whole, and GPUs that are gone."""

from __future__ import annotations

import os

import pytest
from fake_nvml.scenario import h100

from gpumon.collect import nvml
from gpumon.collect.nvml_processes import UNRELIABLE

ME = os.getpid()


def four():
    return [h100(index) for index in range(4)]


@pytest.mark.parametrize("code", [nvml.GPU_IS_LOST, nvml.UNKNOWN])
def test_a_lost_gpu_does_not_hide_the_others(host, code):
    host.start(*four()).fail("nvmlDeviceGetHandleByIndex", code, gpu=1)
    snapshot = host.sample()
    assert (snapshot.gpu_count, snapshot.errors, snapshot.error_kind) == (4, [], None)
    assert [gpu.index for gpu in snapshot.gpus] == [0, 1, 2, 3]
    assert [gpu.error is None for gpu in snapshot.gpus] == [True, False, True, True]
    assert [gpu.temperature_celsius for gpu in snapshot.gpus] == [31, None, 31, 31]
    lost = snapshot.gpus[1]
    assert lost.lost
    assert "dmesg" in lost.error
    assert lost.processes is None


def test_a_gpu_that_gets_lost_keeps_its_names(host):
    host.start(*four())
    before = host.sample().gpus[2]
    host.scenario.lose(2)
    lost = host.sample().gpus[2]
    assert (lost.lost, lost.temperature_celsius) == (True, None)
    assert (lost.uuid, lost.name, lost.pci_bus_id) == (before.uuid, before.name, before.pci_bus_id)
    assert "the GPU is lost" in lost.error


def test_a_gpu_that_needs_a_reset_says_so(host):
    host.start(h100(0), h100(1)).fail("nvmlDeviceGet*", nvml.RESET_REQUIRED, gpu=1)
    gpu = host.sample().gpus[1]
    assert gpu.lost
    assert gpu.error.startswith("the GPU needs a reset")


def test_a_gpu_that_comes_back_is_read_again(host):
    host.start(h100(0), h100(1)).lose(1)
    assert host.sample().gpus[1].lost
    host.scenario.heal()
    gpu = host.sample().gpus[1]
    assert (gpu.lost, gpu.error, gpu.temperature_celsius) == (False, None, 31)


@pytest.mark.parametrize("lost_at_start", [True, False])
def test_no_getter_is_called_with_the_handle_of_a_lost_gpu(host, lost_at_start):
    # The fake ends the process by a segmentation fault then.
    host.start(*four()).values["crash_on_bad_handle"] = "yes"
    if not lost_at_start:
        host.sample()
    host.scenario.lose(1)
    before = host.calls()
    assert [gpu.lost for gpu in host.sample().gpus] == [False, True, False, False]
    asked = host.calls() - before
    assert {name for name, gpu in asked if gpu == 1} == {"nvmlDeviceGetHandleByIndex_v2"}


def test_a_gpu_that_gets_lost_in_the_middle_of_a_sample_is_left_at_once(host):
    host.start(h100(0), h100(1))
    host.sample()
    host.scenario.fail("nvmlDeviceGetTemperature", nvml.GPU_IS_LOST, gpu=1)
    before = host.calls()
    gpu = host.sample().gpus[1]
    assert (gpu.lost, gpu.utilization_percent, gpu.processes) == (True, None, None)
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert (host.calls() - before)["nvmlDeviceGetPowerUsage", 1] == 0


def test_a_gpu_that_may_not_be_opened_is_not_called_lost(host):
    host.start(h100(0), h100(1)).fail("nvmlDeviceGetHandleByIndex", nvml.NO_PERMISSION, gpu=1)
    gpu = host.sample().gpus[1]
    assert (gpu.lost, gpu.temperature_celsius) == (False, None)
    assert "no permission" in gpu.error
    assert "/dev/nvidia" in gpu.error


def test_a_gpu_that_answers_nothing_has_an_error_of_its_own(host):
    host.start(h100(0), h100(1)).fail("nvmlDeviceGet[!H]*", nvml.UNKNOWN, gpu=1)
    good, mute = host.sample().gpus
    assert good.error is None
    assert "answers no question" in mute.error
    assert not mute.lost


def test_when_no_gpu_can_be_opened_it_is_the_access_and_not_the_gpus(host):
    host.start(h100(0), h100(1)).fail("nvmlDeviceGetHandleByIndex", nvml.UNKNOWN)
    snapshot = host.sample()
    assert [gpu.lost for gpu in snapshot.gpus] == [False, False]
    assert [error.startswith("No GPU answers: ") for error in snapshot.errors] == [True]


def test_a_host_without_the_library_says_so(make_host):
    host = make_host()
    host.environment["LD_LIBRARY_PATH"] = "/nonexistent"
    host.start()
    snapshot = host.sample()
    assert (snapshot.gpu_count, snapshot.gpus, snapshot.error_kind) == (None, [], "no library")
    assert "libnvidia-ml.so.1 was not found" in snapshot.errors[0]
    assert snapshot.host.memory_total_mib > 0


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (nvml.DRIVER_NOT_LOADED, "no driver", "not loaded"),
        (nvml.LIB_RM_VERSION_MISMATCH, "version mismatch", "reboot this host"),
        (nvml.NO_PERMISSION, "no permission", "/dev/nvidia"),
        (nvml.UNKNOWN, "failed", "nvidia-smi"),
    ],
)
def test_each_way_in_which_the_driver_does_not_open_has_its_own_sentence(host, code, kind, words):
    host.start(h100(0)).fail("nvmlInit", code)
    snapshot = host.sample()
    assert (snapshot.gpu_count, snapshot.gpus, snapshot.error_kind) == (None, [], kind)
    # After an upgrade jobs of before may run on: who has a GPU open is told too.
    assert len(snapshot.errors) == (2 if kind == "version mismatch" else 1)
    assert words in snapshot.errors[0]


def test_a_driver_that_is_loaded_later_is_picked_up(host):
    host.start(h100(0)).fail("nvmlInit", nvml.DRIVER_NOT_LOADED)
    assert host.sample().gpu_count is None
    host.scenario.heal()
    snapshot = host.sample()
    assert (snapshot.gpu_count, snapshot.errors, snapshot.error_kind) == (1, [], None)
    assert snapshot.driver_version == "550.54.15"
    assert snapshot.cuda_version == "12.4"


def test_a_host_without_gpus_has_none_and_no_error(host):
    host.start()
    snapshot = host.sample()
    assert (snapshot.gpu_count, snapshot.gpus, snapshot.errors) == (0, [], [])
    assert snapshot.driver_version == "550.54.15"


def test_gpus_that_are_given_back_to_the_host_are_seen(host):
    host.start()
    before = host.calls()
    host.sample()
    host.scenario.gpus.append(h100(0))
    assert host.sample().gpu_count == 1
    # A real driver counts its GPUs only when it is opened.
    assert (host.calls() - before)["nvmlInitWithFlags", None] == 2


def test_a_count_that_changes_gives_every_index_a_new_identity(host):
    host.start(*four())
    host.sample()
    del host.scenario.gpus[0]
    listed = [gpu for gpu in host.sample().gpus if gpu.missing_since is None]
    assert [gpu.uuid for gpu in listed] == [gpu["uuid"] for gpu in host.scenario.gpus]


def test_access_that_is_revoked_is_told_and_the_rows_stay(host):
    host.start(h100(0), h100(1))
    before = host.sample()
    host.scenario.fail("*", nvml.UNKNOWN)
    snapshot = host.sample()
    assert (snapshot.gpu_count, snapshot.driver_version) == (None, None)
    assert len(snapshot.errors) == 1
    assert "lost access" in snapshot.errors[0]
    assert [gpu.uuid for gpu in snapshot.gpus] == [gpu.uuid for gpu in before.gpus]
    assert all(gpu.error is not None and not gpu.lost for gpu in snapshot.gpus)


def test_a_driver_that_is_unloaded_under_the_agent_is_called_that(host):
    host.start(h100(0))
    host.sample()
    host.scenario.fail("nvmlDeviceGetCount", nvml.UNKNOWN)
    host.scenario.fail("nvmlInit", nvml.DRIVER_NOT_LOADED)
    snapshot = host.sample()
    assert (snapshot.gpu_count, snapshot.error_kind) == (None, "no driver")
    assert len(snapshot.errors) == 1
    assert snapshot.errors[0].startswith("The NVIDIA driver is not loaded")
    assert "lost access" not in snapshot.errors[0]


def test_when_all_gpus_fail_at_once_nvml_is_opened_anew_once(host):
    host.start(h100(0), h100(1))
    host.sample()
    host.scenario.fail("nvmlDeviceGet*", nvml.UNKNOWN, gpu=0)
    host.scenario.fail("nvmlDeviceGet*", nvml.UNKNOWN, gpu=1)
    before = host.calls()
    snapshot = host.sample()
    assert (snapshot.gpu_count, [gpu.lost for gpu in snapshot.gpus]) == (2, [False, False])
    assert "lost access" in snapshot.errors[0]
    assert [gpu.uuid for gpu in snapshot.gpus] == [gpu["uuid"] for gpu in host.scenario.gpus]
    host.sample(later=5)
    opened = host.calls() - before
    assert opened["nvmlInitWithFlags", None] == opened["nvmlShutdown", None] == 1
    host.sample(later=60)
    assert (host.calls() - before)["nvmlInitWithFlags", None] == 2


def test_access_that_comes_back_when_nvml_is_opened_anew_is_told_once(host):
    host.start(h100(0))
    host.sample()
    host.scenario.fail("nvmlDeviceGetCount", nvml.UNKNOWN, times=1)
    snapshot = host.sample()
    assert [gpu.temperature_celsius for gpu in snapshot.gpus] == [31]
    assert len(snapshot.errors) == 1
    assert "opened anew, and GPUs answer again" in snapshot.errors[0]
    host.scenario.heal()
    assert host.sample().errors == []


def test_a_gpu_to_skip_is_not_touched_and_keeps_its_row(host):
    words = "it hung the sampler three times"
    host.start(*four(), skip={1: {"uuid": "GPU-1", "name": "H100", "error": words}})
    before = host.calls()
    snapshot = host.sample()
    skipped = snapshot.gpus[1]
    assert (skipped.uuid, skipped.name, skipped.error) == ("GPU-1", "H100", words)
    assert [gpu.error is None for gpu in snapshot.gpus] == [True, False, True, True]
    assert [name for name, gpu in host.calls() - before if gpu == 1] == []
    assert snapshot.errors == []


def test_a_host_whose_only_gpu_is_skipped_has_no_other_trouble(host):
    host.start(h100(0), skip={0: {"error": "it hung the sampler"}})
    snapshot = host.sample()
    assert (snapshot.gpu_count, snapshot.errors) == (1, [])
    assert snapshot.gpus[0].error == "it hung the sampler"


def test_progress_names_each_gpu_before_it_is_touched_and_then_none(host):
    host.start(*four(), skip={1: {"error": "skipped"}})
    host.sample()
    assert host.progress() == [0, 2, 3, -1]


def test_one_gpus_nonsense_costs_its_own_row_only(host):
    host.start(h100(0), h100(1)).process(1, ME, 10)
    host.scenario.gpus[1].lines.append("process = 0 memory=1MiB")
    good, bad = host.sample().gpus
    assert good.processes == []
    assert (bad.processes, bad.unknown["processes"]) == (None, UNRELIABLE.reason)
    assert bad.temperature_celsius == 31
