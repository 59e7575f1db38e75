"""Process lists, utilization samples and events, heard through the unmodified binding."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_nvml.child import told
from fake_nvml.scenario import MIB, Scenario, h100, mig, rtx

LISTS = """
def lists(handle, version="", kinds=("Compute", "Graphics", "MPSCompute")):
    return [[[p.pid, p.usedGpuMemory]
             for p in ask(f"DeviceGet{kind}RunningProcesses{version}", handle)] for kind in kinds]
"""


def test_a_process_stands_in_the_lists_of_its_kinds(tmp_path: Path) -> None:
    scenario = Scenario([rtx(0), rtx(1)])
    scenario.process(0, 100, 2048)
    scenario.process(0, 101, 64, kind="graphics")
    scenario.process(0, 102, 128, kind="compute+graphics")
    scenario.process(0, 103, 16, kind="mps")
    scenario.process(0, 104, None)
    script = (
        LISTS
        + """
tell([lists(device(0)), lists(device(0), "_v2"), lists(device(1)),
      ask("DeviceGetMemoryInfo", device(0), n.nvmlMemory_v2).used])
"""
    )
    compute = [[100, 2048 * MIB], [102, 128 * MIB], [104, None]]
    graphics = [[101, 64 * MIB], [102, 128 * MIB]]
    expected = [compute, graphics, [[103, 16 * MIB]]]

    assert told(script, scenario, tmp_path) == [
        expected,
        expected,
        [[], [], []],
        (2048 + 64 + 128 + 16) * MIB,
    ]


def test_the_first_version_has_records_of_its_own(tmp_path: Path) -> None:
    scenario = Scenario([h100(0)])
    scenario.process(0, 100, 1)
    scenario.process(0, 101, None)
    script = """
class Record(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]
function = ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetComputeRunningProcesses
count, records = ctypes.c_uint(1), (Record * 3)()
short = function(device(), ctypes.byref(count), records)
needed = count.value
count.value = 3
tell([short, needed, function(device(), ctypes.byref(count), records),
      [[r.pid, r.memory] for r in records[:count.value]]])
"""

    assert told(script, scenario, tmp_path) == [7, 2, 0, [[100, MIB], [101, 2**64 - 1]]]


def test_processes_of_instances_carry_their_ids_and_show_on_the_gpu(tmp_path: Path) -> None:
    scenario = Scenario([mig(h100(0), "3g.40gb", "1g.10gb")])
    scenario.process(0, 100, 10, mig=0)
    scenario.process(0, 101, 20, mig=1)
    script = """
parent = device()
handles = [parent] + [ask("DeviceGetMigDeviceHandleByIndex", parent, i) for i in (0, 1)]
tell([[[p.pid, p.gpuInstanceId, p.computeInstanceId]
       for p in ask("DeviceGetComputeRunningProcesses", h)] for h in handles]
     + [ask("DeviceGetMemoryInfo", handles[2], n.nvmlMemory_v2).used])
"""
    first, second = [100, 1, 0], [101, 8, 0]

    assert told(script, scenario, tmp_path) == [[first, second], [first], [second], 20 * MIB]


@pytest.mark.parametrize(
    ("layout", "nonsense"),
    [
        # 24-byte records read from 32-byte ones: the second is pid 0 with a pid as its memory.
        ("535", [[100, 6200 * MIB], [0, 101], [2**32 - 1, 0]]),
        # ... and from 16-byte ones: pid and memory swapped.
        ("v1", [[100, 6200 * MIB], [6300 * MIB % 2**32, 102], [0, 0]]),
    ],
)
def test_silently_changed_records_come_out_scrambled(
    layout: str, nonsense: list[list[int]], tmp_path: Path
) -> None:
    scenario = Scenario([h100(0), h100(1)])
    for pid, memory in ((100, 6200), (101, 6300), (102, 6400)):
        scenario.process(0, pid, memory)
    scenario.process(1, 100, 6200)
    scenario.values["process_layout"] = layout
    script = (
        LISTS
        + """
tell([lists(device(0), "_v3")[0], lists(device(0), "_v2")[0], lists(device(1), "_v3")[0]])
"""
    )
    truth = [[100, 6200 * MIB], [101, 6300 * MIB], [102, 6400 * MIB]]

    assert told(script, scenario, tmp_path) == [nonsense, truth, [[100, 6200 * MIB]]]


def test_a_list_grows_between_size_and_fill_once_or_for_ever(tmp_path: Path) -> None:
    once, ever = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"
    scenario = Scenario([h100(0)])
    scenario.process(0, 100, 1, kind="compute+graphics")
    scenario.fail(once, "INSUFFICIENT_SIZE", on="fill", times=1)
    scenario.fail(ever, "INSUFFICIENT_SIZE", on="fill")
    script = """tell([[isinstance(ask(f"DeviceGet{kind}RunningProcesses", device()), str)
                       for _ in range(3)] for kind in ("Compute", "Graphics")])"""

    assert told(script, scenario, tmp_path) == [[True, False, False], [True, True, True]]


def test_the_detail_list(tmp_path: Path) -> None:
    scenario = Scenario([h100(0)])
    scenario.process(0, 100, 1)
    scenario.process(0, 101, None, kind="graphics")
    scenario.gpus[0].lines.append("process = 102 memory=3MiB protected=2MiB")
    script = """tell([[[p.pid, p.usedGpuMemory, p.usedGpuCcProtectedMemory] for p in
                        ask("DeviceGetRunningProcessDetailList", device(), 0x1000018, mode)]
                      for mode in (0, 2)])"""

    assert told(script, scenario, tmp_path) == [[[100, MIB, 0], [102, 3 * MIB, 2 * MIB]], []]


SAMPLES = """
def samples(index, since):
    found = ask("DeviceGetProcessUtilization", device(index), since)
    return found if isinstance(found, str) else [
        [s.pid, s.smUtil, s.memUtil, s.encUtil, s.decUtil] for s in found]

def ages(index, since=0):
    now = time.time() * 1e6
    return [round((now - s.timeStamp) / 1e6)
            for s in ask("DeviceGetProcessUtilization", device(index), since)]
"""


def test_samples_of_processes_are_fresh_at_every_call(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1)])
    scenario.process(0, 100, 1, sm=70)
    scenario.process(0, 101, 1)
    scenario.gpus[0].lines.append("process = 102 sm=5 mem=6 enc=7 dec=8 jpg=9 ofa=10")
    script = (
        SAMPLES
        + """
now = int(time.time() * 1e6)
info = ask("DeviceGetProcessesUtilizationInfo", device(0), now)
tell([samples(0, 0), samples(0, now), samples(1, 0), samples(0, now + 10**9),
      ask("DeviceGetProcessesUtilizationInfo", device(1), 0),
      [[s.pid, s.smUtil, s.memUtil, s.encUtil, s.decUtil, s.jpgUtil, s.ofaUtil] for s in info],
      ages(0)])
"""
    )
    found = [[100, 70, 0, 0, 0], [102, 5, 6, 7, 8]]

    assert told(script, scenario, tmp_path) == [
        found,
        found,
        "error 6",
        "error 6",
        "error 6",
        [[100, 70, 0, 0, 0, 0, 0], [102, 5, 6, 7, 8, 9, 10]],
        [0, 0],
    ]


def test_samples_may_be_stale_absurd_or_zero_filled(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1), h100(2)])
    scenario.sample(0, 100, 4294967, "age=600")
    scenario.sample(0, 101, 50, "age=0.2s")
    scenario.sample(1, 0, 0, "time=0 repeat=100")
    scenario.sample(2, 100, 30, "time=1700000000000000")
    script = (
        SAMPLES
        + """
tell([[s[:2] for s in samples(0, 0)], ages(0), ages(0, int((time.time() - 60) * 1e6)),
      len(samples(1, int(time.time() * 1e6))), samples(1, 0)[99],
      len(samples(2, 1699999999999999)), samples(2, 1700000000000000)])
"""
    )

    assert told(script, scenario, tmp_path) == [
        [[100, 4294967], [101, 50]],
        [600, 0],
        [0],
        100,
        [0, 0, 0, 0, 0],
        1,
        "error 6",
    ]


def test_process_names_are_given_or_real(tmp_path: Path) -> None:
    scenario = Scenario([h100(0)])
    scenario.process(0, 100, 1, name="/opt/my program/run")
    script = """tell([ask("SystemGetProcessName", 100), ask("SystemGetProcessName", os.getpid()),
                      sys.executable, ask("SystemGetProcessName", 2**22 + 1)])"""
    given, real, executable, none = told(script, scenario, tmp_path)

    assert given == "/opt/my program/run"
    assert os.path.basename(real) == os.path.basename(executable)
    assert none == "error 6"


EVENTS = """
def wait(events, ms=0):
    event = ask("EventSetWait", events, ms)
    if isinstance(event, str):
        return event
    return [ask("DeviceGetIndex", event.device), event.eventType, event.eventData]

def register(index, types):
    return ask("DeviceRegisterEvents", device(index), types, events)

events = ask("EventSetCreate")
"""


def test_each_event_is_told_once_to_each_set(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1), rtx(2)])
    scenario.event(0, "xid", 79)
    scenario.event(1, "sbe")
    scenario.event(1, "xid", 48)
    script = (
        EVENTS
        + """
registered = [register(0, 8), register(1, 8), register(2, 8 | 2)]
first = [wait(events), wait(events), wait(events)]
other = ask("EventSetCreate")
ask("DeviceRegisterEvents", device(1), 1, other)
second = [wait(other), wait(other), ask("EventSetFree", other), wait(other)]
scenario = Scenario([h100(0), h100(1)])
scenario.event(0, "xid", 79)
scenario.event(0, "xid", 31)
scenario.write(path)
tell([ask("DeviceGetSupportedEventTypes", device(0)), registered, first, second, wait(events),
      wait(events)])
"""
    )

    assert told(script, scenario, tmp_path) == [
        0xB,
        [None, None, "error 3"],
        [[0, 8, 79], [1, 8, 48], "error 10"],
        [[1, 1, 0], "error 10", None, "error 2"],
        [0, 8, 31],
        "error 10",
    ]


def test_an_event_that_comes_later_ends_the_wait(tmp_path: Path) -> None:
    script = (
        EVENTS
        + """
register(0, 8)
def happen():
    scenario = Scenario([h100(0)])
    scenario.event(0, "xid", 94)
    scenario.write(path)
threading.Timer(0.05, happen).start()
start = time.monotonic()
tell([wait(events, 10_000), time.monotonic() - start < 5])
"""
    )

    assert told(script, Scenario([h100(0)]), tmp_path) == [[0, 8, 94], True]
