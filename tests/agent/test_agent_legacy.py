"""gpumonitor's JSON: what its web server reads and computes works on every answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_examples import busy, gpu, host, instance, mig, process, unknown

from gpumon.agent.legacy import gpu_stats, without_readings
from gpumon.model import Gpu


def stats(*gpus: Gpu) -> dict[str, Any]:
    return json.loads(gpu_stats(host(*gpus)))


ODD = [
    gpu(0),
    busy(0),
    unknown(0),
    gpu(0, memory_total_mib=None),
    gpu(0, memory_total_mib=0, memory_used_mib=0),
    gpu(0, memory_used_mib=None),
    gpu(0, memory_free_mib=None, memory_reserved_mib=None),
    gpu(0, utilization_percent=None),
    gpu(0, temperature_celsius=None),
    gpu(0, name=None),
    gpu(0, processes=None),
    gpu(0, processes=[process(1, user=None, gpu_memory_used_mib=None, runtime_seconds=None)]),
    mig(0),
    mig(0, instance(0), instance(1, processes=[process(1)])),
]


@pytest.mark.parametrize("odd", ODD)
def test_the_old_web_servers_arithmetic_works(odd):
    told = stats(gpu(0), odd)
    assert len(told["procs"]) == len(told["gpus"]) == 2
    users: dict[str, float] = {}
    for one, processes in zip(told["gpus"], told["procs"], strict=True):
        memory_percent = int(100 * one["memory_used"] / one["memory_total"])
        assert 0 <= memory_percent <= 100
        assert 0 <= one["utilization"] <= 100
        text = f"{one['utilization']}% ({len(processes)})"
        text += f"{one['memory_used'] / 1024:.1f} / {one['memory_total'] / 1024:.1f} GB"
        assert "None" not in text + one["model"]
        assert one["memory_free"] <= one["memory_total"]
        for row in processes:
            users[row["userid"]] = users.get(row["userid"], 0) + row["used_memory"]
            assert row["pid"] >= 0
            assert row["time"]
            assert row["unit"] == "MiB"
    assert all(isinstance(user, str) for user in users)


def test_values_types_and_units_are_gpumonitors():
    [one], [[row]] = stats(busy(0))["gpus"], stats(busy(0))["procs"]
    assert {key: one[key] for key in ("memory_total", "memory_used", "memory_free")} == {
        "memory_total": 81559.0,
        "memory_used": 4096.0,
        "memory_free": 76912.0,
    }
    assert '"memory_used":4096.0' in gpu_stats(host(busy(0)))
    assert (one["utilization"], one["temperature"]) == (97, 31)
    assert one["model"] == "NVIDIA H100 80GB HBM3"
    assert (one["index"], one["uuid"], one["error"], one["unknown"]) == (0, "GPU-0", None, [])
    assert row["pid"] == 100
    assert row["process_name"] == "python train.py"
    assert (row["used_memory"], row["unit"]) == (4096, "MiB")
    assert (row["userid"], row["time"]) == ("alice", "1:02:05")


def test_an_idle_gpu_has_an_empty_list():
    assert stats(gpu(0))["procs"] == [[]]


def test_what_is_unknown_is_never_free_and_is_named():
    [one] = stats(unknown(0))["gpus"]
    assert (one["memory_total"], one["memory_used"], one["memory_free"]) == (1.0, 1.0, 0.0)
    assert one["utilization"] == 0
    assert one["temperature"] == "N/A"
    assert one["error"] == "the driver has not answered since 14:02:11"
    assert set(one["unknown"]) == {
        "memory_total", "memory_used", "memory_free", "utilization", "temperature", "processes"
    }  # fmt: skip


def test_with_a_known_total_unknown_use_is_all_of_it():
    [one] = stats(gpu(0, memory_used_mib=None))["gpus"]
    assert (one["memory_total"], one["memory_used"], one["memory_free"]) == (81559.0, 81559.0, 0.0)
    assert one["unknown"] == ["memory_used", "memory_free"]


def test_a_list_of_processes_that_could_not_be_read_does_not_look_empty():
    told = stats(gpu(0, processes=None))
    [[row]] = told["procs"]
    assert (row["pid"], row["userid"], row["used_memory"]) == (0, "?", 0)
    assert row["process_name"] == "the process list could not be read"
    assert told["gpus"][0]["unknown"] == ["processes"]


def test_processes_in_mig_instances_are_their_gpus():
    told = stats(mig(0, instance(0, processes=[process(7)]), instance(1)))
    assert [row["pid"] for row in told["procs"][0]] == [7]
    assert "processes" not in told["gpus"][0]["unknown"]
    told = stats(mig(0, instance(0, processes=None), instance(1)))
    assert [row["pid"] for row in told["procs"][0]] == [0]
    assert "processes" in told["gpus"][0]["unknown"]


@pytest.mark.parametrize(("user", "told"), [("alice", "alice"), ("uid:1234", "1234"), (None, "?")])
def test_an_owner_is_a_login_name_or_a_number(user, told):
    assert stats(gpu(0, processes=[process(1, user=user)]))["procs"][0][0]["userid"] == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0:00:00"), (59, "0:00:59"), (86400, "1 day, 0:00:00"), (200000, "2 days, 7:33:20")],
)
def test_run_times_are_texts_as_before(seconds, told):
    row = stats(gpu(0, processes=[process(1, runtime_seconds=seconds)]))["procs"][0][0]
    assert row["time"] == told


def test_command_lines_do_not_leave_the_host_this_way():
    assert "secret" not in gpu_stats(host(busy(0)))


def test_an_old_sample_keeps_its_gpus_and_nothing_that_was_measured():
    old = without_readings(host(busy(0), gpu(1), unknown(2)), "no answer for an hour")
    told = json.loads(gpu_stats(old))
    assert [one["memory_used"] / one["memory_total"] for one in told["gpus"]] == [1, 1, 1]
    assert [one["uuid"] for one in told["gpus"]] == ["GPU-0", "GPU-1", None]
    assert told["gpus"][0]["error"] == "no answer for an hour"
    assert [[row["userid"] for row in rows] for rows in told["procs"]] == [["?"]] * 3
