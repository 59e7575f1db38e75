"""Whatever other tools' agents and hosts over SSH say: a reading or a failed poll, not worse."""

from __future__ import annotations

import json
import xmlrpc.client
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from other_tools import GPUMONITOR_PROCESS, gpumonitor_gpu, nvgpu_gpu
from ssh_host import a_row

from gpumon.cluster.sources import gpumonitor, nvgpu
from gpumon.cluster.sources.answer import Unexpected
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.foreign import as_reading
from gpumon.cluster.sources.ssh.columns import NAMES
from gpumon.cluster.sources.ssh.script import CutShort, Part, taken_apart
from gpumon.cluster.sources.ssh.snapshot import snapshot
from gpumon.config import Limits
from gpumon.states import is_free

NOW = 1_764_000_000.0
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.just({}),
)


def sound(reading: Reading) -> None:
    """The detail opens, and unknown memory or processes never make a GPU free."""
    assert reading.detail().gpus is not None
    for gpu in reading.summary.gpus:
        if gpu.memory_used_mib is None or not gpu.processes_known:
            assert is_free(gpu, Limits()) is not True


def changed(row: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The row with some of its values replaced by odd ones."""
    return st.dictionaries(st.sampled_from(sorted(row)), ODD, max_size=4).map(
        lambda odd: {**row, **odd}
    )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(changed(gpumonitor_gpu()) | ODD, max_size=3),
    st.lists(st.lists(changed(GPUMONITOR_PROCESS) | ODD, max_size=2) | ODD, max_size=3),
)
def test_any_stats_of_gpumonitor_are_a_reading_or_a_failed_poll(gpus, procs):
    text = json.dumps({"gpus": gpus, "procs": procs})
    body = xmlrpc.client.dumps((text,), methodresponse=True).encode()
    with suppress(Unexpected):
        sound(gpumonitor.reading(body, NOW))


@settings(max_examples=200, deadline=None)
@given(st.lists(changed({**nvgpu_gpu(), "memory": {}}) | ODD, max_size=3), ODD)
def test_any_report_of_nvgpu_is_a_reading_or_a_failed_poll(gpus, hostname):
    body = json.dumps({"hostname": hostname, "gpus": gpus}).encode()
    with suppress(Unexpected):
        sound(nvgpu.reading(body))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_of_nvgpu_are_a_failed_poll_at_worst(body):
    with suppress(Unexpected):
        sound(nvgpu.reading(body))


WORDS = st.one_of(
    st.text(max_size=12),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(
        ["[N/A]", "[GPU is lost]", "0x4", "Enabled", "GPU-0", "MIG-1", "1,5", ", ", "-"]
    ),
)
LINES = st.lists(st.lists(WORDS, max_size=5).map(", ".join), max_size=4).map("\n".join)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(sorted(NAMES)), WORDS, max_size=5), max_size=3),
    LINES,
    LINES,
    LINES,
    st.integers(-1, 255),
)
def test_any_output_over_ssh_is_a_reading(rows, processes, ps, facts, code):
    whole = [{**a_row(number), **row} for number, row in enumerate(rows)]
    names = sorted(NAMES)
    table = [", ".join(names)] + [
        ", ".join(str(row.get(name, "[N/A]")) for name in names) for row in whole
    ]
    header = "gpu_uuid, pid, used_gpu_memory [MiB], process_name"
    parts = {
        "host": Part(f"time 1764000000\nnamespace pid:[4026531836]\n{facts}", 0),
        "gpus": Part("\n".join(table), code),
        "processes": Part(f"{header}\n{processes}\ncode {max(code, 0)}", 0),
        "ps": Part(f"time 1764000000\n{ps}", code),
        "instances": Part(processes, 0),
    }
    found = snapshot(parts)
    with suppress(ValueError):  # lists beyond reason
        sound(as_reading(found))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_over_ssh_are_an_output_or_cut_short(output):
    with suppress(CutShort):
        taken_apart(output, "@gpumon-0")
