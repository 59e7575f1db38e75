"""One sample without a daemon: it comes, or a sentence does, within the time."""

from __future__ import annotations

import os
import time

import pytest
from agent_supervising import Plan

from gpumon.agent import take_one as module
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


def test_who_waits_is_told_once_what_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.3)
    told = []
    plan = Plan(tmp_path, bad={"2": "hang"})
    take_one(6.0, command=plan.command, notice=lambda *what: told.append(what))
    [(gpu, seconds)] = told
    assert gpu == 2
    assert 4.0 < seconds < 5.9


def test_who_waits_is_told_that_the_driver_as_a_whole_is_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.3)
    told = []
    plan = Plan(tmp_path, do="hang")
    with pytest.raises(CollectError):
        take_one(4.0, command=plan.command, notice=lambda *what: told.append(what))
    assert [gpu for gpu, _ in told] == [None]


def test_who_does_not_wait_long_is_told_nothing(tmp_path):
    told = []
    take_one(command=Plan(tmp_path).command, notice=lambda *what: told.append(what))
    assert told == []


def test_work_is_done_once_while_the_sampler_starts(tmp_path):
    done = []
    plan = Plan(tmp_path, bad={"1": "abort"})
    take_one(command=plan.command, meanwhile=lambda: done.append(plan.asked()))
    assert len(done) == 1
    assert len(plan.pids()) == 2


def test_a_program_that_can_not_be_started_is_told(tmp_path):
    with pytest.raises(CollectError) as caught:
        take_one(command=[str(tmp_path / "missing")])
    what, _, advice = str(caught.value).partition("; ")
    assert what == "the sampler can't be started (No such file or directory)"
    assert "TasksMax=" in advice


def test_a_sampler_that_talks_without_end_is_no_trouble(tmp_path):
    assert take_one(command=Plan(tmp_path, do="chatter").command).gpus[0].uuid == "GPU-0"


def test_an_interrupt_leaves_no_sampler(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    plan = Plan(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        take_one(command=plan.command, meanwhile=interrupt)
    for pid in plan.pids():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
