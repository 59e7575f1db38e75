"""free(): never a GPU that is held, broken, or not fully known."""

from __future__ import annotations

import pytest
from agent_examples import busy, gpu, host, instance, mig, process, unknown

from gpumon.agent.free import free_gpus
from gpumon.model import Gpu
from gpumon.summary import summarize


def free(*gpus: Gpu, min_free_mib: int = 0, name: str = "") -> list[str | None]:
    snapshot = host(*gpus)
    return [one.uuid for one in free_gpus(snapshot, summarize(snapshot), min_free_mib, name)]


def test_a_gpu_that_nobody_holds_is_given_with_what_is_needed_to_take_it():
    snapshot = host(gpu(3))
    [one] = free_gpus(snapshot, summarize(snapshot), 0, "")
    assert (one.index, one.mig_index, one.uuid) == (3, None, "GPU-3")
    assert (one.name, one.memory_free_mib) == ("NVIDIA H100 80GB HBM3", 81008)


@pytest.mark.parametrize(
    "odd",
    [
        busy(0),
        unknown(0),
        gpu(0, error="not all of it could be read"),
        gpu(0, lost=True),
        gpu(0, ecc_volatile_uncorrected=1),
        gpu(0, clock_event_reasons=["hw_thermal_slowdown"]),
        gpu(0, processes=None),
        gpu(0, memory_used_mib=None),
        gpu(0, memory_used_mib=40_000),
        gpu(0, processes=[process(1, gpu_memory_used_mib=None)]),
        gpu(0, compute_mode="prohibited"),
        mig(0),
    ],
)
def test_what_is_held_broken_unknown_or_not_to_be_used_is_never_given(odd):
    assert free(odd) == []
    assert free(odd, gpu(1)) == ["GPU-1"]


def test_a_display_server_does_not_hold_a_gpu():
    shown = process(1, kinds=["graphics"], gpu_memory_used_mib=300)
    assert free(gpu(0, memory_used_mib=300, processes=[shown])) == ["GPU-0"]


def test_free_mig_instances_are_given_and_never_their_gpu():
    one = mig(
        0,
        instance(0, processes=[process(1)]),
        instance(1),
        instance(2, processes=None),
        instance(3, error="it is gone"),
        instance(4, uuid=None),
    )
    snapshot = host(one)
    [found] = free_gpus(snapshot, summarize(snapshot), 0, "")
    assert (found.index, found.mig_index, found.uuid) == (0, 1, "MIG-1")
    assert (found.name, found.memory_free_mib) == ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9844)


def test_instances_of_a_broken_gpu_are_not_given():
    broken = mig(0, instance(0))
    broken.ecc_volatile_uncorrected = 3
    assert free(broken) == []


def test_memory_and_name_can_be_asked_for():
    gpus = [
        gpu(0, memory_free_mib=10_000),
        gpu(1, memory_free_mib=None),
        gpu(2, name="NVIDIA A100-SXM4-40GB"),
        gpu(3, name=None),
        mig(4, instance(7)),
    ]
    assert set(free(*gpus)) == {"GPU-0", "GPU-1", "GPU-2", "GPU-3", "MIG-7"}
    assert set(free(*gpus, min_free_mib=10_001)) == {"GPU-2", "GPU-3"}
    assert free(*gpus, min_free_mib=10_000, name="h100") == ["GPU-0"]
    assert free(*gpus, name="a100") == ["GPU-2"]
    assert free(*gpus, name="mig 1G") == ["MIG-7"]


def test_the_least_used_comes_first_then_the_most_free_memory():
    gpus = [
        gpu(0, utilization_percent=None),
        gpu(1, utilization_percent=4),
        gpu(2, memory_free_mib=500),
        gpu(3, memory_free_mib=900),
        gpu(4, memory_free_mib=900),
    ]
    assert free(*gpus) == ["GPU-3", "GPU-4", "GPU-2", "GPU-1", "GPU-0"]
