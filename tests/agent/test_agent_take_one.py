"""One sample without a daemon: it comes, or a sentence does, within the time."""

from __future__ import annotations

import os
import time

import pytest
from agent_supervising import Plan

from gpumon.agent.take_one import take_one
from gpumon.errors import CollectError


def test_one_sample_comes_from_one_child_that_is_gone_afterwards(tmp_path):
    plan = Plan(tmp_path)
    snapshot = take_one(command=plan.command)
    assert [gpu.uuid for gpu in snapshot.gpus] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert snapshot.sample_age_seconds == 0.0
    assert snapshot.sample_interval_seconds is None
    [pid] = plan.pids()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("word", ["hang", "segfault"])
def test_a_bad_gpu_costs_its_own_row_only(tmp_path, word):
    plan = Plan(tmp_path, bad={"2": word})
    snapshot = take_one(4.0, command=plan.command)
    assert [gpu.error is None for gpu in snapshot.gpus] == [True, True, False, True]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("hang", "the driver has not answered since"),
        ("abort", "the sampler crashed"),
        ("garbage", "no sample"),
        ("exit 1", r"the sampler ended \(exit code 1\) at [\d:]+: last words"),
    ],
)
def test_without_a_sample_there_is_a_sentence_in_time(tmp_path, word, sentence):
    plan = Plan(tmp_path, do=word)
    began = time.monotonic()
    with pytest.raises(CollectError, match=sentence) as caught:
        take_one(3.0, command=plan.command)
    assert caught.value.kind == "failed"
    assert time.monotonic() - began < 3.0
    assert len(plan.pids()) == 1


def test_when_every_gpu_hangs_it_still_ends_in_time(tmp_path):
    plan = Plan(tmp_path, gpus=8, bad={str(index): "hang" for index in range(8)})
    began = time.monotonic()
    with pytest.raises(CollectError, match=r"GPU \d was being read"):
        take_one(4.0, command=plan.command)
    assert time.monotonic() - began < 4.0
