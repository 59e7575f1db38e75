"""The sampler process: frames, ends, hangs."""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from collect_helpers import needs_root, needs_unshare, until
from fake_nvml.scenario import Scenario, calls, environment, h100

from gpumon.collect.processes import NOT_OURS, NOT_OURS_ERROR
from gpumon.model import decode_snapshot, splice
from gpumon.summary import decode_summary, summarize

COMMAND = [sys.executable, "-m", "gpumon.collect.sampler", "--interval", "5"]
ME = os.getpid()


class Sampler:
    """A sampler, as its parent sees it."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.path = folder / "scenario"
        self.calls = folder / "calls"
        self.write()
        self.process: subprocess.Popen[bytes] | None = None

    def write(self):
        self.scenario.write(self.path)

    def start(self, *arguments, prefix=(), **options):
        self.process = subprocess.Popen(
            [*prefix, *COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(self.path, self.calls) | options.pop("env", {}),
            **options,
        )
        return self

    def request(self):
        self.process.stdin.write(b"s\n")
        self.process.stdin.flush()

    def frame(self):
        whole, short = struct.unpack(">II", self._read(8))
        return self._read(whole), self._read(short)

    def sample(self):
        self.request()
        return decode_snapshot(self.frame()[0])

    def _read(self, size, seconds=20.0):
        data = b""
        end = time.monotonic() + seconds
        while len(data) < size:
            readable, _, _ = select.select(
                [self.process.stdout], [], [], max(0, end - time.monotonic())
            )
            assert readable, "no frame"
            part = os.read(self.process.stdout.fileno(), size - len(data))
            assert part, self.process.stderr.read().decode()
            data += part
        return data

    def end(self, seconds=10.0):
        """Wait for the end; return exit code and what was logged."""
        _, log = self.process.communicate(timeout=seconds)
        return self.process.returncode, log.decode()

    def hang_in(self, function):
        """Let a sample hang in `function`, and wait until it does."""
        self.scenario.hang(function)
        self.write()
        before = calls(self.calls)
        self.request()
        until(
            lambda: any(name == function for name, _ in calls(self.calls) - before),
            f"it hangs in {function}",
        )


@pytest.fixture
def sampler(tmp_path):
    made = Sampler(Scenario(gpus=[h100(0), h100(1)]), tmp_path)
    yield made
    if made.process is not None:
        if made.process.poll() is None:
            made.process.kill()
        for pipe in (made.process.stdin, made.process.stdout, made.process.stderr):
            pipe.close()
        made.process.wait()


def test_each_request_brings_one_frame_of_snapshot_and_summary(sampler):
    sampler.start()
    for _ in range(3):
        sampler.request()
    for _ in range(3):
        whole, short = sampler.frame()
        snapshot = decode_snapshot(splice(whole, 1.5, None))
        assert (snapshot.sample_age_seconds, len(snapshot.gpus)) == (1.5, 2)
        assert snapshot.sample_interval_seconds == 5.0
        aged = msgspec.structs.replace(snapshot, sample_age_seconds=1.5)
        assert decode_summary(splice(short, 1.5, None)) == summarize(aged)
    sampler.process.stdin.close()
    assert sampler.process.wait(10) == 0
    assert sampler.process.stdout.read() == b""


def test_the_end_of_its_input_ends_it_and_closes_nvml(sampler):
    sampler.start().sample()
    code, log = sampler.end()
    assert (code, log) == (0, "")
    assert calls(sampler.calls)["nvmlShutdown", None] == 1


def test_sigterm_ends_an_idle_sampler_with_exit_code_0(sampler):
    sampler.start().sample()
    sampler.process.terminate()
    assert sampler.end() == (0, "")
    assert calls(sampler.calls)["nvmlShutdown", None] == 1


def test_sigterm_in_a_sample_waits_for_it_before_nvml_is_closed(sampler):
    sampler.scenario.values["abort_on_shutdown_while_busy"] = "yes"
    sampler.write()
    sampler.start().sample()
    sampler.scenario.slow("nvmlDeviceGetTemperature", 300)
    sampler.write()
    before = calls(sampler.calls)
    sampler.request()
    until(lambda: (calls(sampler.calls) - before)["nvmlDeviceGetTemperature", 0], "it samples")
    sampler.process.terminate()
    code, _ = sampler.end()
    assert code == 0
    assert calls(sampler.calls)["nvmlShutdown", None] == 1


@pytest.mark.system
def test_sigterm_ends_a_sampler_that_is_stuck_in_the_driver_without_closing_nvml(sampler):
    sampler.scenario.values["abort_on_shutdown_while_busy"] = "yes"
    sampler.write()
    sampler.start().sample()
    sampler.hang_in("nvmlDeviceGetPowerUsage")
    begin = time.monotonic()
    sampler.process.terminate()
    assert sampler.end() == (0, "")
    assert time.monotonic() - begin < 8
    assert calls(sampler.calls)["nvmlShutdown", None] == 0


@pytest.mark.system
def test_a_driver_that_does_not_close_does_not_hold_the_sampler(sampler):
    sampler.start().sample()
    sampler.scenario.hang("nvmlShutdown", forever=True)
    sampler.write()
    sampler.process.terminate()
    assert sampler.end() == (0, "")


def test_ctrl_c_is_the_parents_business(sampler):
    sampler.start().sample()
    sampler.process.send_signal(signal.SIGINT)
    assert sampler.sample().gpu_count == 2
    assert sampler.end() == (0, "")


def test_a_parent_that_closed_its_end_ends_it_quietly(sampler):
    sampler.start().sample()
    sampler.process.stdout.close()
    sampler.request()
    assert sampler.process.wait(10) == 0
    assert sampler.process.stderr.read() == b""


def test_it_dies_with_its_parent_even_when_its_input_stays_open(sampler, tmp_path):
    middle = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({COMMAND!r}, stdin=0, stdout=1)\n"
        "sys.stderr.write(f'{child.pid}\\n'); sys.stderr.flush()\n"
        "time.sleep(600)\n"
    )
    sampler.process = subprocess.Popen(
        [sys.executable, "-c", middle],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(sampler.path, sampler.calls),
    )
    child = int(sampler.process.stderr.readline())
    sampler.sample()
    sampler.process.kill()
    sampler.process.wait()
    until(lambda: not alive(child), "the sampler is gone")


def test_progress_is_left_where_a_hung_gpu_can_be_named(sampler, tmp_path):
    with (tmp_path / "progress").open("w+b") as file:
        file.write(struct.pack("<i", -1))
        file.flush()
        shared = mmap.mmap(file.fileno(), 4)
        sampler.start("--progress-fd", str(file.fileno()), pass_fds=[file.fileno()])
        sampler.sample()
        assert struct.unpack("<i", shared[:]) == (-1,)
        sampler.scenario.hang("nvmlDeviceGetPowerUsage", gpu=1)
        sampler.write()
        sampler.request()
        until(lambda: struct.unpack("<i", shared[:]) == (1,), "GPU 1 is named")
        sampler.process.kill()
        sampler.process.wait()
        assert struct.unpack("<i", shared[:]) == (1,)
        shared.close()


def test_gpus_to_skip_are_given_by_index(sampler):
    skip = {"1": {"uuid": "GPU-1", "name": "H100", "error": "it hung the sampler"}}
    gpus = sampler.start("--skip", json.dumps(skip)).sample().gpus
    assert [gpu.error for gpu in gpus] == [None, "it hung the sampler"]
    assert (gpus[1].uuid, gpus[1].name) == ("GPU-1", "H100")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--skip", '{"1": {}}'], "missing required field `error`"),
        (["--skip", "nonsense"], "argument --skip"),
        (["--progress-fd", "999"], "an open file of 4 bytes was expected, found 999"),
        (["--progress-fd", "x"], "an open file of 4 bytes was expected, found x"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(sampler, arguments, words):
    code, log = sampler.start(*arguments).end()
    assert code == 2
    assert words in log.splitlines()[-1]
    assert "Traceback" not in log


def test_what_a_library_prints_does_not_get_between_the_frames(sampler):
    # The fake reports a broken scenario on stderr; and standard output is the log by then.
    sampler.start().sample()
    stdout = os.readlink(f"/proc/{sampler.process.pid}/fd/1")
    assert stdout == os.readlink(f"/proc/{sampler.process.pid}/fd/2")


def test_an_unknown_request_is_logged_and_gets_no_frame(sampler):
    sampler.start()
    sampler.process.stdin.write(b"x\ns\n")
    sampler.process.stdin.flush()
    assert decode_snapshot(sampler.frame()[0]).gpu_count == 2
    assert sampler.end() == (
        0,
        "sampler: a line \"s\" was expected on standard input, found b'x'\n",
    )


def test_a_gpu_that_gets_lost_is_logged_once(sampler):
    sampler.start().sample()
    sampler.scenario.lose(1)
    sampler.write()
    for _ in range(3):
        assert sampler.sample().gpus[1].lost
    code, log = sampler.end()
    assert code == 0
    assert len(log.splitlines()) == 1
    assert log.startswith("sampler: GPU 1: the GPU is lost")


def test_trouble_is_logged_when_it_begins_and_when_it_is_over(sampler):
    sampler.scenario.fail("nvmlInit", 9)
    sampler.write()
    sampler.start()
    for _ in range(3):
        assert sampler.sample().gpu_count is None
    sampler.scenario.heal()
    sampler.write()
    assert sampler.sample().gpu_count == 2
    code, log = sampler.end()
    assert code == 0
    first, last = log.splitlines()
    assert first.startswith("sampler: The NVIDIA driver is not loaded")
    assert last.startswith("sampler: over: The NVIDIA driver is not loaded")


@needs_root
@needs_unshare
@pytest.mark.system
def test_in_a_container_with_pids_of_its_own_no_owner_is_named(sampler):
    sampler.scenario.process(0, 1, 100)  # pid 1 of the host; the container has one, too
    sampler.write()
    sampler.start(prefix=["unshare", "--pid", "--fork", "--mount-proc"])
    snapshot = sampler.sample()
    row = snapshot.gpus[0].processes[0]
    assert (row.pid, row.user, row.program, row.note) == (1, None, None, NOT_OURS)
    assert snapshot.errors == [NOT_OURS_ERROR]


@needs_root
@needs_unshare
@pytest.mark.system
def test_a_system_container_may_say_that_the_pids_are_its_own(sampler):
    sampler.scenario.process(0, 1, 100)
    sampler.write()
    sampler.start(
        prefix=["unshare", "--pid", "--fork", "--mount-proc"], env={"GPUMON_PIDS_ARE_MINE": "1"}
    )
    snapshot = sampler.sample()
    row = snapshot.gpus[0].processes[0]
    # Pid 1 of this namespace is the sampler itself.
    assert (row.user, row.program) == ("root", "python -m gpumon.collect.sampler")
    assert snapshot.errors == []


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
