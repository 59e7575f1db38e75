"""How often the driver is disturbed."""

from __future__ import annotations

import os
from collections import Counter

from fake_nvml.scenario import h100, rtx

from gpumon.collect import nvml

STATIC = {"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo_v3"}
ONCE_A_MINUTE = {
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetEnforcedPowerLimit",
}


def eight(host):
    host.start(*[h100(index) for index in range(8)])
    for gpu in range(8):
        host.scenario.gpus[gpu]["fan_speed"] = 30  # everything that can be asked
        host.scenario.process(gpu, os.getpid(), 10, sm=50)
        host.scenario.process(gpu, os.getppid(), 10, kind="graphics")
    return host


def by_function(calls):
    found = Counter()
    for (name, _), count in calls.items():
        found[name] += count
    return found


def test_a_sample_of_eight_gpus_takes_at_most_150_calls(host):
    eight(host)
    host.sample()
    for _ in range(30):  # two and a half minutes at one sample in 5 s
        before = host.calls()
        host.sample(later=5)
        assert sum((host.calls() - before).values()) <= 150


def test_what_never_changes_is_asked_once_and_what_seldom_does_once_a_minute(host):
    eight(host)
    before = host.calls()
    for _ in range(10):
        host.sample(later=5)
    counts = by_function(host.calls() - before)
    assert {counts[name] for name in STATIC | ONCE_A_MINUTE} == {8}
    assert counts["nvmlInitWithFlags"] == counts["nvmlSystemGetDriverVersion"] == 1
    assert counts["nvmlDeviceGetTemperature"] == counts["nvmlDeviceGetUtilizationRates"] == 80
    for _ in range(12):
        host.sample(later=10)
    counts = by_function(host.calls() - before)
    assert {counts[name] for name in STATIC} == {8}
    assert all(16 <= counts[name] <= 24 for name in ONCE_A_MINUTE)


def test_a_change_of_what_seldom_changes_is_seen_after_a_minute(host):
    gpu = host.start(h100(0)).gpus[0]
    assert host.gpu().compute_mode == "default"
    gpu["compute_mode"] = 3
    assert host.gpu(later=30).compute_mode == "default"
    assert host.gpu(later=31).compute_mode == "exclusive_process"


def test_what_is_not_supported_is_not_asked_again_before_the_next_minute(host):
    gpu = host.start(h100(0)).gpus[0]
    before = host.calls()
    for _ in range(10):
        assert host.gpu(later=5).unknown["fan_speed_percent"] == "not supported"
    assert (host.calls() - before)["nvmlDeviceGetFanSpeed", 0] == 1
    gpu["fan_speed"] = 40
    assert host.gpu(later=60).fan_speed_percent == 40


def test_a_passing_failure_is_asked_again_with_the_next_sample(host):
    host.start(h100(0)).fail("nvmlDeviceGetTemperature", nvml.UNKNOWN)
    host.scenario.fail("nvmlDeviceGetComputeMode", nvml.UNKNOWN)
    assert host.gpu().temperature_celsius is None
    host.scenario.heal()
    gpu = host.gpu()
    assert (gpu.temperature_celsius, gpu.compute_mode) == (31, "default")


def test_a_gpu_without_processes_is_not_asked_for_their_shares(host):
    host.start(rtx(0))
    before = host.calls()
    host.sample()
    assert (host.calls() - before)["nvmlDeviceGetProcessUtilization", 0] == 0


def test_the_memory_of_an_older_driver_costs_one_call_a_sample(host):
    host.start(h100(0)).values["driver_symbols"] = 470
    host.sample()
    before = host.calls()
    host.sample(later=5)
    asked = by_function(host.calls() - before)
    assert (asked["nvmlDeviceGetMemoryInfo_v2"], asked["nvmlDeviceGetMemoryInfo"]) == (0, 1)
