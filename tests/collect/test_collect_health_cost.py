"""What health costs, and the sampler's options for it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

from fake_nvml.scenario import Scenario, environment, h100
from health_log import Log

from gpumon.collect.health.kernel_log import KernelLog
from gpumon.collect.moment import Moment
from gpumon.model import decode_snapshot

HEALTH_CALLS = ("nvmlEvent", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes")


def health_calls(counted):
    return sum(count for (name, _), count in counted.items() if name.startswith(HEALTH_CALLS))


def test_events_cost_one_call_a_sample_for_all_gpus(host):
    host.start(*[h100(index) for index in range(8)])
    host.sample()
    before = host.calls()
    for _ in range(10):
        host.sample(later=5)
    assert health_calls(host.calls() - before) == 10


def test_bad_memory_is_asked_for_once_a_minute(host):
    host.start(h100(0))
    before = host.calls()
    for _ in range(10):
        host.sample(later=5)
    asked = (host.calls() - before)["nvmlDeviceGetFieldValues", 0]
    assert asked == 10 + 1 + 1  # counts since reset each time, ever and bad memory once


def test_a_kernel_log_without_news_costs_one_read(tmp_path, monkeypatch):
    log = Log(tmp_path / "kmsg")
    for _ in range(50):
        log.write("usb 1-1: new device")
    now = Moment(1_764_000_000.0, 5000.0, 9000.0)
    reader = KernelLog(str(log.path))
    reader.read(now)
    reads = []
    monkeypatch.setattr(reader, "_read", lambda: reads.append(1) or b"")
    reader.read(now)
    assert len(reads) == 1


def sample(tmp_path, *options):
    """Run the sampler for one sample; return the snapshot and what it logged."""
    gpus = [h100(0), h100(1)]
    scenario = Scenario(gpus=gpus).write(tmp_path / "scenario")
    done = subprocess.run(
        [sys.executable, "-m", "gpumon.collect.sampler", "--interval", "5", *map(str, options)],
        input=b"s\n",
        capture_output=True,
        env=environment(scenario),
        timeout=30,
        check=True,
    )
    length, _ = struct.unpack(">II", done.stdout[:8])
    return decode_snapshot(done.stdout[8 : 8 + length]), done.stderr.decode()


def test_the_sampler_is_told_where_log_and_memory_are(tmp_path):
    log, state = Log(tmp_path / "kmsg"), tmp_path / "state.json"
    log.xid(h100(1), 62)
    snapshot, said = sample(tmp_path, "--kernel-log", log.path, "--state-file", state)
    assert [event.code for event in snapshot.gpus[1].health] == [62]
    kept = json.loads(state.read_bytes())  # the end waited for it
    assert sorted(kept["gpus"]) == sorted(gpu.uuid for gpu in snapshot.gpus)
    assert said == ""


def test_without_a_place_to_write_the_sampler_works_and_says_so_once(tmp_path):
    log = Log(tmp_path / "kmsg")
    snapshot, said = sample(
        tmp_path, "--kernel-log", log.path, "--state-file", tmp_path / "no" / "state.json"
    )
    assert (len(snapshot.gpus), snapshot.errors) == (2, [])
    assert said.count("\n") == 1
    assert "can't be written (No such file or directory)" in said
