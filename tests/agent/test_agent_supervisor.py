"""The supervisor against samplers that misbehave: real child processes, no driver."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from agent_supervising import Plan, drive, samples, shown, until

from gpumon.agent import child, failures
from gpumon.agent.supervisor import next_turn


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_samples_come_from_one_child_and_get_younger(tmp_path):
    plan = Plan(tmp_path)
    supervisor = plan.supervisor()

    async def scenario():
        first = supervisor.latest()
        assert first.snapshot is None
        assert shown(supervisor).sampler_error == "no sample has been taken yet"
        assert shown(supervisor).gpu_count is None
        await until(lambda: samples(supervisor) >= 3)
        latest = supervisor.latest()
        assert latest.sampler_error is None
        assert latest.revision.partition("-")[0] == first.revision.partition("-")[0]
        assert shown(supervisor).gpu_count == 4
        assert latest.age(time.monotonic()) < 1.0
        assert latest.restarts == 0

    drive(supervisor, scenario)
    assert len(plan.pids()) == 1
    assert gone(plan.pids()[0]), "the child outlived its supervisor"


def test_revisions_differ_between_runs_of_the_agent(tmp_path):
    plan = Plan(tmp_path)
    assert plan.supervisor().latest().revision != plan.supervisor().latest().revision


def test_a_slow_sampler_is_never_asked_twice_at_a_time(tmp_path):
    plan = Plan(tmp_path, do="slow")
    supervisor = plan.supervisor(interval=0.02, deadline=5.0)

    async def scenario():
        await until(lambda: samples(supervisor) >= 3)
        assert len(plan.asked()) <= samples(supervisor) + 1

    drive(supervisor, scenario)
    assert len(plan.pids()) == 1


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("hang", r"the driver has not answered since \d\d:\d\d:\d\d"),
        ("hang, deaf", r"the driver has not answered since \d\d:\d\d:\d\d"),
        ("abort", r"the sampler crashed \(signal SIGABRT\) at \d\d:\d\d:\d\d"),
        ("segfault", r"the sampler crashed \(signal SIGSEGV\) at \d\d:\d\d:\d\d"),
        ("exit 3", r"the sampler ended \(exit code 3\) at [\d:]+: last words"),
        ("half a frame", r"the sampler ended \(exit code 0\) at .*"),
        ("garbage", r"the sampler answered at [\d:]+ with something that is no sample"),
        ("huge", r"the sampler answered at [\d:]+ with something that is no sample"),
        ("not JSON", r"the sampler answered at [\d:]+ with something that is no sample"),
        ("twice", r"the sampler answered at [\d:]+ with something that is no sample"),
        ("close", r"the sampler closed its output at [\d:]+"),
    ],
)
def test_a_failure_is_told_in_words_while_the_last_sample_stays_and_ages(
    tmp_path, monkeypatch, word, sentence
):
    monkeypatch.setattr(child, "KILL_SECONDS", 0.3)
    plan = Plan(tmp_path)
    supervisor = plan.supervisor()

    advice = re.escape(failures.HUNG if word.startswith("hang") else failures.FAILED)
    sentence = f"{sentence}; {advice}"

    async def scenario():
        await until(lambda: samples(supervisor) >= 1)
        plan.set(do=word)
        await until(lambda: supervisor.latest().sampler_error is not None)
        assert re.fullmatch(sentence, supervisor.latest().sampler_error)
        before = shown(supervisor)
        assert [gpu.uuid for gpu in before.gpus] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
        await asyncio.sleep(0.05)
        assert shown(supervisor).sample_age_seconds > before.sample_age_seconds
        failed = samples(supervisor)
        plan.set()
        await until(lambda: samples(supervisor) > failed)
        assert supervisor.latest().sampler_error is None
        assert re.fullmatch(sentence, supervisor.latest().last_error)
        assert supervisor.latest().restarts >= 1

    drive(supervisor, scenario)
    assert all(gone(pid) for pid in plan.pids())


def test_the_child_has_more_time_for_its_first_sample(tmp_path):
    plan = Plan(tmp_path, do="slow")
    supervisor = plan.supervisor(deadline=0.1, start_deadline=3.0)

    async def scenario():
        await until(lambda: samples(supervisor) >= 1)
        assert len(plan.pids()) == 1
        await until(lambda: len(plan.pids()) >= 2)

    drive(supervisor, scenario)


def test_the_time_in_the_sentence_is_that_of_the_first_request_in_vain(tmp_path):
    plan = Plan(tmp_path)
    supervisor = plan.supervisor(deadline=0.2, start_deadline=0.5)

    async def scenario():
        await until(lambda: samples(supervisor) >= 1)
        plan.set(do="hang")
        await until(lambda: supervisor.latest().sampler_error is not None)
        first = supervisor.latest()
        await until(lambda: supervisor.latest().restarts >= 4)  # more than a second later
        assert supervisor.latest().sampler_error == first.sampler_error

    drive(supervisor, scenario)


def test_restarts_of_a_sampler_that_never_works_get_rarer(tmp_path):
    plan = Plan(tmp_path, do="exit 1")
    supervisor = plan.supervisor(restart_pauses=(0.05, 60.0))
    starts = []

    async def scenario():
        for number in range(1, 5):
            await until(lambda number=number: len(plan.pids()) >= number)
            starts.append(time.monotonic())

    drive(supervisor, scenario)
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    assert pauses[0] >= 0.05
    assert pauses[1] >= 0.1
    assert pauses[2] >= 0.2


def test_a_program_that_can_not_be_started_is_told_and_tried_again(tmp_path):
    plan = Plan(tmp_path)
    supervisor = plan.supervisor(command=[str(tmp_path / "missing")])

    async def scenario():
        await until(lambda: supervisor.latest().restarts >= 2)
        assert supervisor.latest().sampler_error == (
            f"the sampler can't be started (No such file or directory); {failures.NOT_STARTED}"
        )

    drive(supervisor, scenario)


def test_what_the_child_says_reaches_the_log_cleaned_and_bounded(tmp_path, caplog):
    plan = Plan(tmp_path, do="chatter")
    supervisor = plan.supervisor()

    async def scenario():
        await until(lambda: samples(supervisor) >= 3)

    with caplog.at_level(logging.DEBUG, "gpumon.agent.child"):
        drive(supervisor, scenario)
    lines = [record.getMessage() for record in caplog.records]
    said = [line for line in lines if "chatter" in line]
    by_child = Counter(line.partition(":")[0] for line in said)  # a slow machine costs a child
    assert 1 <= max(by_child.values()) <= 30
    assert re.match(r"sampler \d+: chatter 0\N{REPLACEMENT CHARACTER}\[31m x+…$", said[0])
    assert max(map(len, lines)) < 600
    assert [line for line in lines if line.endswith("messages of this minute are dropped")]


def test_last_words_of_a_child_reach_the_log(tmp_path, caplog):
    plan = Plan(tmp_path, do="exit 1")
    supervisor = plan.supervisor()

    async def scenario():
        await until(lambda: supervisor.latest().restarts >= 1)

    drive(supervisor, scenario)
    assert f"sampler {plan.pids()[0]}: last words" in caplog.text


def test_turns_are_a_schedule_and_missed_ones_are_not_made_up():
    assert next_turn(100.0, 100.4, 5.0) == 105.0
    assert next_turn(100.0, 104.999, 5.0) == 105.0
    assert next_turn(100.0, 105.0, 5.0) == 110.0
    assert next_turn(100.0, 133.0, 5.0) == 135.0


# ---- A child that SIGKILL does not end, as in a driver that never returns. ----

HOLD = """
import ctypes, sys
seize, trace_exit = 0x4206, 0x40
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print(ptrace(seize, int(sys.argv[1]), None, trace_exit), flush=True)
sys.stdin.read()
"""


@contextmanager
def held(pid):
    """Keep a process from ending: a tracer that does not let it go stops it on its way out."""
    command = [sys.executable, "-c", HOLD, str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        if holder.stdout.readline() != b"0\n":
            holder.communicate()
            pytest.skip("this machine does not let processes be traced")
        yield
        holder.communicate()


def test_a_child_that_can_not_be_killed_is_not_joined_by_another(tmp_path):
    plan = Plan(tmp_path)
    supervisor = plan.supervisor()

    async def scenario():
        await until(lambda: samples(supervisor) >= 1)
        [pid] = plan.pids()
        plan.set(do="hang, may be held")
        asked = len(plan.asked())
        await until(lambda: len(plan.asked()) > asked)
        with held(pid):
            await until(lambda: "can't be ended" in (supervisor.latest().sampler_error or ""))
            assert re.fullmatch(
                rf"the driver has not answered since [\d:]+; the sampler \(process {pid}\) can't "
                "be ended before the driver lets it go, and is replaced then; if that takes long, "
                "reboot the host",
                supervisor.latest().sampler_error,
            )
            plan.set()
            await asyncio.sleep(0.3)  # many restart pauses
            assert plan.pids() == [pid]
            assert len(shown(supervisor).gpus) == 4
        seen = samples(supervisor)
        await until(lambda: samples(supervisor) > seen)
        assert supervisor.latest().sampler_error is None

    drive(supervisor, scenario)


@pytest.mark.system
def test_a_try_that_can_not_be_killed_costs_no_sample_and_gets_no_company(tmp_path):
    plan = Plan(tmp_path, bad={"1": "hang, may be held"})
    supervisor = plan.supervisor(retry_pauses=(0.1, 0.2), start_deadline=0.7)

    async def scenario():
        await until(lambda: samples(supervisor) >= 1)
        children = len(plan.pids())
        await until(lambda: len(plan.pids()) > children)
        await asyncio.sleep(0.2)  # the try hangs in its GPU by now
        with held(plan.pids()[-1]):
            tried, seen = plan.pids(), samples(supervisor)
            await asyncio.sleep(2.5)  # its deadline, the kill, and many retry pauses
            assert plan.pids() == tried
            assert samples(supervisor) > seen + 20
            plan.set()
        await until(lambda: supervisor.latest().skipped == ())

    drive(supervisor, scenario)


# ---- A GPU that hangs or crashes the sampler. ----


def row(supervisor, index):
    return shown(supervisor).gpus[index]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("hang", r"the driver has not answered since [\d:]+ \(GPU 2 was being read\)"),
        ("segfault", r"the sampler crashed \(signal SIGSEGV\) at [\d:]+ while GPU 2 was read"),
    ],
)
def test_a_bad_gpu_costs_its_own_row_only(tmp_path, word, sentence):
    plan = Plan(tmp_path)
    supervisor = plan.supervisor()

    async def scenario():
        await until(lambda: samples(supervisor) >= 1)
        plan.set(bad={"2": word})
        await until(lambda: row(supervisor, 2).error is not None)
        seen = samples(supervisor)
        await until(lambda: samples(supervisor) >= seen + 3)
        latest = supervisor.latest()
        assert latest.sampler_error is None
        bad = row(supervisor, 2)
        advice = failures.HUNG if word == "hang" else failures.FAILED
        assert re.fullmatch(f"{sentence}; {re.escape(advice)}", bad.error)
        assert (bad.uuid, bad.name) == ("GPU-2", "Stub 9000")
        assert [gpu.error for gpu in shown(supervisor).gpus if gpu.index != 2] == [None] * 3
        [skipped] = latest.skipped
        assert (skipped.index, skipped.uuid, skipped.error) == (2, "GPU-2", bad.error)
        assert latest.restarts == 1

    drive(supervisor, scenario)


def test_several_bad_gpus_are_found_one_after_the_other_without_growing_pauses(tmp_path):
    plan = Plan(tmp_path, gpus=7, bad={str(index): "abort" for index in range(6)})
    supervisor = plan.supervisor(restart_pauses=(0.1, 60.0))

    async def scenario():
        began = time.monotonic()
        await until(lambda: samples(supervisor) >= 2)
        assert time.monotonic() - began < 5  # doubled each time, the pauses alone would be 6.3 s
        errors = [gpu.error for gpu in shown(supervisor).gpus]
        assert [error is None for error in errors] == [False] * 6 + [True]

    drive(supervisor, scenario)


@pytest.mark.system
@pytest.mark.parametrize("word", ["hang", "abort"])
def test_a_gpu_is_tried_again_without_losing_a_sample_and_heals(tmp_path, word):
    plan = Plan(tmp_path)
    supervisor = plan.supervisor(retry_pauses=(0.3, 60.0), start_deadline=0.6)

    async def scenario():
        await until(lambda: samples(supervisor) >= 1)
        plan.set(bad={"1": word})
        await until(lambda: supervisor.latest().skipped and samples(supervisor) >= 3)
        first = supervisor.latest().skipped[0]
        oldest = 0.0
        # The try fails: the same sentence, a longer pause, and samples all the time.
        while supervisor.latest().skipped[0].retry_at == first.retry_at:
            oldest = max(oldest, supervisor.latest().age(time.monotonic()))
            await asyncio.sleep(0.01)
        assert oldest < 0.5
        second = supervisor.latest().skipped[0]
        assert second.error == first.error
        assert second.retry_at - time.monotonic() > 0.4
        assert supervisor.latest().sampler_error is None
        assert supervisor.latest().restarts == 1
        plan.set()
        await until(lambda: row(supervisor, 1).error is None)
        assert supervisor.latest().skipped == ()
        assert supervisor.latest().restarts == 1

    drive(supervisor, scenario)
    assert all(gone(pid) for pid in plan.pids())


@pytest.mark.system
def test_a_gpu_that_fails_while_another_heals_is_left_out_and_the_other_is_back(tmp_path):
    plan = Plan(tmp_path, bad={"1": "abort"})
    supervisor = plan.supervisor(retry_pauses=(0.4, 60.0), start_deadline=5.0)

    async def scenario():
        await until(lambda: samples(supervisor) >= 1)
        children = len(plan.pids())
        plan.set(bad={"1": "slow", "2": ""})
        await until(lambda: len(plan.pids()) > children)  # the try has begun, and takes 0.3 s
        plan.set(bad={"2": "abort"})
        await until(lambda: [gpu.index for gpu in supervisor.latest().skipped] == [2])
        await until(lambda: row(supervisor, 2).error is not None)
        await until(lambda: row(supervisor, 1).error is None)

    drive(supervisor, scenario)
    assert all(gone(pid) for pid in plan.pids())


def test_a_supervisor_that_ends_during_a_try_leaves_no_child(tmp_path):
    plan = Plan(tmp_path, bad={"1": "hang"})
    supervisor = plan.supervisor(retry_pauses=(0.1, 60.0), start_deadline=0.5)

    async def scenario():
        await until(lambda: samples(supervisor) >= 1)
        children = len(plan.pids())
        await until(lambda: len(plan.pids()) > children)

    drive(supervisor, scenario)
    assert all(gone(pid) for pid in plan.pids())


def test_runs_of_use_outlive_the_sampler(tmp_path):
    plan = Plan(tmp_path)
    supervisor = plan.supervisor()

    async def scenario() -> None:
        await until(lambda: samples(supervisor) >= 1)
        before = shown(supervisor).gpus[0].watched_since
        assert before is not None
        os.kill(plan.pids()[0], signal.SIGKILL)
        await until(lambda: len(plan.pids()) == 2 and supervisor.latest().sampler_error is None)
        after = shown(supervisor).gpus[0].watched_since
        assert after is not None
        assert abs(after - before) < 0.2

    drive(supervisor, scenario)
