"""Unchanged agents of gpumonitor, asked by our server over the real wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from cluster_tools import a_config, an_entry
from other_tools import (
    GPUMONITOR_PROCESS,
    gpumonitor_agent,
    gpumonitor_gpu,
    gpumonitor_stats,
)

from gpumon.agent.legacy import gpu_stats
from gpumon.cluster.sources import gpumonitor
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.config import Limits
from gpumon.errors import SourceError
from gpumon.model import Gpu, HostSnapshot, Process
from gpumon.states import is_free, is_held


def poll(port: int, times: int = 1, between: Callable[[int], None] = lambda _: None) -> Any:
    """The readings of `times` polls of one source; `between` is told how many there were."""

    async def work() -> list[Reading]:
        entry = an_entry("old", port)
        connections = Connections(a_config(entry))
        source = XmlRpcSource(entry, connections)
        found = []
        try:
            for number in range(times):
                between(number)
                found.append(await asyncio.wait_for(source.poll(), 10))
        finally:
            await connections.close()
        return found

    found = asyncio.run(work())
    return found[0] if times == 1 else found


def reading_of(text: object) -> Reading:
    with gpumonitor_agent(lambda: text) as port:
        return poll(port)


def failure_of(stats: Callable[[], Any]) -> SourceError:
    with gpumonitor_agent(stats) as port, pytest.raises(SourceError) as caught:
        poll(port)
    assert "\n" not in str(caught.value)
    return caught.value


def test_an_unchanged_agent_is_read_by_gpu_stats():
    busy = gpumonitor_gpu(memory_used=21010.5, memory_free=60548.5, utilization=97)
    before = time.time()
    reading = reading_of(gpumonitor_stats(gpumonitor_gpu(), busy, procs=[[], [GPUMONITOR_PROCESS]]))
    snapshot = reading.detail()
    empty, used = snapshot.gpus
    assert (snapshot.gpu_count, snapshot.driver_version, snapshot.agent_version) == (2, None, None)
    assert (empty.index, empty.name) == (0, "NVIDIA A100-SXM4-80GB")
    assert (empty.memory_total_mib, empty.memory_used_mib, empty.memory_free_mib) == (
        81559,
        530,
        81029,
    )
    assert (empty.utilization_percent, empty.temperature_celsius) == (0, 31)
    assert empty.processes == []
    assert used.utilization_percent == 97
    [process] = used.processes
    assert (process.pid, process.user, process.gpu_memory_used_mib) == (4711, "alice", 20480)
    assert (process.program, process.command) == ("python", None)
    assert process.runtime_seconds == 93784.0
    assert before - 93785 < process.started_at < time.time() - 93783
    assert reading.summary.sample_age_seconds == 0.0


def test_what_such_an_agent_does_not_tell_is_unknown_with_its_reason():
    [gpu] = reading_of(gpumonitor_stats(gpumonitor_gpu())).detail().gpus
    for field in ("uuid", "power_draw_watts", "ecc_mode", "memory_reserved_mib", "sm_clock_mhz"):
        assert getattr(gpu, field) is None
        assert gpu.unknown[field] == "not told by an agent of gpumonitor"
    assert not {"memory_used_mib", "processes", "mig"} & set(gpu.unknown)


def test_an_empty_gpu_of_such_an_agent_is_free_and_a_held_one_is_not():
    held = gpumonitor_gpu(memory_used=21010.5)
    reading = reading_of(gpumonitor_stats(gpumonitor_gpu(), held, procs=[[], [GPUMONITOR_PROCESS]]))
    assert [is_free(gpu, Limits()) for gpu in reading.summary.gpus] == [True, False]


def test_words_in_place_of_numbers_are_unknown_and_the_gpu_is_not_free():
    odd = gpumonitor_gpu(memory_used="N/A", memory_free="N/A", utilization="N/A", temperature="N/A")
    reading = reading_of(gpumonitor_stats(odd, gpumonitor_gpu()))
    gpu = reading.detail().gpus[0]
    assert (gpu.memory_used_mib, gpu.utilization_percent, gpu.temperature_celsius) == (None,) * 3
    assert gpu.unknown["utilization_percent"] == "not told by the driver (N/A)"
    assert [is_held(gpu) for gpu in reading.summary.gpus] == [None, False]


def test_without_utilization_it_may_be_in_mig_mode_so_it_is_not_called_free():
    reading = reading_of(gpumonitor_stats(gpumonitor_gpu(utilization="N/A")))
    assert is_free(reading.summary.gpus[0], Limits()) is None


@pytest.mark.parametrize(
    "value", [-1, 1e300, float("nan"), float("inf"), "12", True, [], {}, None, 10**400]
)
@pytest.mark.parametrize("key", ["memory_total", "memory_used", "utilization", "temperature"])
def test_a_number_that_can_not_be_costs_itself_only(key, value):
    text = gpumonitor_stats(gpumonitor_gpu(**{key: value}), gpumonitor_gpu())
    field = {"utilization": "utilization_percent", "temperature": "temperature_celsius"}.get(
        key, f"{key}_mib"
    )
    odd, sound = reading_of(text).detail().gpus
    if not (field == "temperature_celsius" and value == -1):
        assert getattr(odd, field) is None
        assert odd.unknown[field]
    assert getattr(sound, field) is not None
    assert odd.name == sound.name


@pytest.mark.parametrize(
    "procs",
    [
        [],
        [[], []],
        "N/A",
        [["N/A"], []],
        [[{"pid": "x"}], []],
        [[{**GPUMONITOR_PROCESS, "pid": 0}]],
    ],
)
def test_processes_that_can_not_be_read_are_unknown_and_not_none(procs):
    text = gpumonitor_stats(gpumonitor_gpu(), gpumonitor_gpu(), procs=procs)
    if procs == "N/A":
        with gpumonitor_agent(lambda: text) as port, pytest.raises(SourceError, match="procs"):
            poll(port)
        return
    reading = reading_of(text)
    first, second = reading.summary.gpus
    assert first.processes_known == (procs == [[], []])
    assert second.processes_known == (len(procs) == 2)
    assert is_free(first, Limits()) == (True if procs == [[], []] else None)


def test_memory_of_zero_means_that_the_driver_did_not_tell():
    row = {**GPUMONITOR_PROCESS, "used_memory": 0, "userid": "1234", "time": "?"}
    [gpu] = reading_of(gpumonitor_stats(gpumonitor_gpu(), procs=[[row]])).detail().gpus
    [process] = gpu.processes
    assert process.gpu_memory_used_mib is None
    assert process.user == "uid:1234"
    assert (process.started_at, process.runtime_seconds) == (None, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:00:00", 0.0),
        ("23:59:59", 86399.0),
        ("1 day, 0:00:01", 86401.0),
        ("40 days, 12:00:00.123", 3499200.0),
        ("999999 days, 0:00:00", None),
        ("-1 day, 23:59:59", None),
        ("1:75:00", None),
        ("", None),
        (None, None),
        (17, None),
    ],
)
def test_run_times_are_read_as_python_writes_them(text, seconds):
    assert gpumonitor.run_time(text) == seconds


def test_names_are_cleaned_and_paths_and_arguments_stay_out():
    row = {**GPUMONITOR_PROCESS, "process_name": "/x/y/app --key s3cret", "userid": "a\x1b[31m"}
    text = gpumonitor_stats(gpumonitor_gpu(model="A\u202e100"), procs=[[row]])
    [gpu] = reading_of(text).detail().gpus
    assert gpu.name == "A\ufffd100"
    assert gpu.processes[0].program == "app"
    assert gpu.processes[0].user == "a\ufffd[31m"


def test_a_host_without_gpus_has_none():
    assert reading_of(gpumonitor_stats()).summary.gpu_count == 0


def test_its_fault_is_a_failed_poll_of_that_host_with_its_words():
    def dead_process() -> str:
        raise ValueError("process no longer exists (pid=4711)")

    error = failure_of(dead_process)
    assert error.kind == "failed"
    assert "process no longer exists (pid=4711)" in str(error)
    assert "journalctl -u gpumonitor-rpc" in str(error)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (17, "no text"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "another form"),
        ('{"gpus": 1, "procs": []}', "without the lists"),
        (gpumonitor_stats(*[gpumonitor_gpu()] * 65), "65 GPUs"),
        ("x" * (2 * 1024 * 1024), "a large document"),
    ],
)
def test_an_answer_of_another_form_is_named(answer, words):
    error = failure_of(lambda: answer)
    assert error.kind == "bad answer"
    assert words in str(error)


def test_poll_is_not_asked_again_at_once_but_an_upgrade_is_noticed(monkeypatch):
    asked: list[str] = []
    clock = [1000.0]
    monkeypatch.setattr("gpumon.cluster.sources.xmlrpc.time.monotonic", lambda: clock[0])

    def gpu_stats() -> str:
        asked.append("gpu_stats")
        return gpumonitor_stats(gpumonitor_gpu())

    def poll_method(*_: object) -> None:
        asked.append("poll")
        raise Exception('method "poll" is not supported')

    def later(number: int) -> None:
        clock[0] += 61.0 if number == 3 else 5.0

    # Registered only to see it asked: the fault is the one of a server without the method.
    with gpumonitor_agent(gpu_stats, poll=poll_method) as port:
        poll(port, 4, later)
    assert asked == ["poll", "gpu_stats", "gpu_stats", "gpu_stats", "poll", "gpu_stats"]


def test_a_failure_makes_it_ask_for_poll_first():
    habit = gpumonitor.Habit()
    habit.has_no_poll(100.0)
    assert habit.by_gpu_stats(159.9)
    assert not habit.by_gpu_stats(160.0)
    habit.has_no_poll(200.0)
    habit.failed()
    assert not habit.by_gpu_stats(201.0)


def test_what_our_own_agent_puts_in_for_unknown_is_not_believed():
    blind = Gpu(index=0, error="lost")
    held = Gpu(
        index=1,
        uuid="GPU-1",
        memory_total_mib=1000,
        memory_used_mib=900,
        memory_free_mib=100,
        utilization_percent=5,
        processes=[Process(pid=7, user="uid:12")],
    )
    text = gpu_stats(HostSnapshot(gpus=[blind, held]))
    first, second = reading_of(text).detail().gpus
    assert (first.memory_total_mib, first.memory_used_mib, first.utilization_percent) == (None,) * 3
    assert (first.processes, first.error) == (None, "lost")
    assert (second.memory_used_mib, second.uuid, second.processes[0].user) == (
        900,
        "GPU-1",
        "uid:12",
    )
