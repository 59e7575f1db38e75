"""GPU memory that no process explains is told apart from what the driver itself needs."""

from __future__ import annotations

import pytest
from fake_nvml.scenario import MIB, h100

from gpumon.collect.unattributed import unattributed
from gpumon.model import Gpu, Process
from gpumon.summary import summarize

TOTAL = 81559


def gpu(used, *processes, reserved=633, total=TOTAL, **fields):
    rows = [Process(pid=pid, gpu_memory_used_mib=held) for pid, held in enumerate(processes, 1)]
    given = {"processes": rows, **fields}
    return Gpu(
        index=0,
        memory_total_mib=total,
        memory_used_mib=used,
        memory_reserved_mib=reserved,
        **given,
    )


@pytest.mark.parametrize(
    ("case", "rest"),
    [
        (gpu(10240), 10240),
        (gpu(10240, 4000), 6240),
        (gpu(10240, 4000, 6240), 0),
        # The driver's own and roundings: up to a hundredth of the card, or 512 MiB.
        (gpu(815), 0),
        (gpu(816), 816),
        (gpu(4815, 4000), 0),
        (gpu(4816, 4000), 816),
        (gpu(512, total=None), 0),
        (gpu(513, total=None), 513),
        # More where the driver counts its reserve as used.
        (gpu(1223, reserved=None), 0),
        (gpu(1224, reserved=None), 1224),
        # Processes can share memory, or be read a moment later.
        (gpu(1000, 900, 900), 0),
        (gpu(0), 0),
    ],
)
def test_what_is_in_use_beyond_the_processes_is_unattributed(case, rest):
    assert unattributed(case) == rest


@pytest.mark.parametrize(
    "case",
    [
        gpu(None),
        gpu(10240, processes=None),
        gpu(10240, 4000, None),
        gpu(10240, 4000, unknown={"processes": "the graphics list could not be read: x"}),
        gpu(10240, mig_mode=True),
        gpu(10240, unknown={"mig": "unknown error of the driver"}),
        gpu(10240, unified_memory=True),
        Gpu(index=0, error="lost"),
    ],
)
def test_what_cannot_be_told_is_unknown_and_not_zero(case):
    assert unattributed(case) is None


# ---- In a snapshot. ----


def test_memory_that_nobody_is_listed_for_stands_in_snapshot_and_summary(host):
    card = h100(0)
    card["memory.used"] = 10240 * MIB
    host.start(card, h100(1))
    snapshot = host.sample()
    assert [gpu.unattributed_mib for gpu in snapshot.gpus] == [10240, 0]
    assert [gpu.unattributed_mib for gpu in summarize(snapshot).gpus] == [10240, 0]


def test_memory_of_a_process_explains_what_is_in_use(host, sleeper):
    scenario = host.start(h100(0))
    scenario.process(0, sleeper, 6000)
    assert host.gpu().unattributed_mib == 0
    scenario.gpus[0]["memory.used"] = 16000 * MIB
    assert host.gpu().unattributed_mib == 10000


def test_a_process_whose_memory_the_driver_does_not_tell_may_explain_it_all(host, sleeper):
    scenario = host.start(h100(0))
    scenario.gpus[0]["memory.used"] = 10240 * MIB
    scenario.process(0, sleeper, None)
    assert host.gpu().unattributed_mib is None


def test_rows_that_are_cut_from_a_long_list_still_explain_their_memory(host, sleeper):
    scenario = host.start(h100(0), h100(1))
    for gpu_index in (0, 1):
        for number in range(1200):
            scenario.process(gpu_index, 20_000 + number, 30)
    snapshot = host.sample()
    assert [len(gpu.processes) for gpu in snapshot.gpus] == [1000, 1000]
    assert [gpu.unattributed_mib for gpu in snapshot.gpus] == [0, 0]
