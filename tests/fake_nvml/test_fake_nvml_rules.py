"""What goes wrong by the scenario's rules: errors, waits, hangs, crashes, missing symbols."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from fake_nvml.child import run, told
from fake_nvml.scenario import Mig, Scenario, calls, h100, library, mig

BASE = "scenario = Scenario([h100(0), h100(1)])\n"


def test_a_lost_gpu_answers_nothing_and_the_others_everything(tmp_path: Path) -> None:
    script = """
kept = device(1)
scenario = Scenario([h100(0), mig(h100(1), "1g.10gb"), h100(2)])
instance = ask("DeviceGetMigDeviceHandleByIndex", kept, 0)
uuid, bus_id = (scenario.gpus[1][key] for key in ("uuid", "pci.bus_id"))
scenario.lose(1)
scenario.write(path)
tell([ask("DeviceGetCount"), device(0) and "well", device(1), ask("DeviceGetHandleByUUID", uuid),
      ask("DeviceGetHandleByPciBusId", bus_id), ask("DeviceGetName", kept),
      ask("DeviceGetComputeRunningProcesses", kept), ask("DeviceGetName", instance),
      ask("DeviceGetName", device(2))])
"""
    scenario = Scenario([h100(0), mig(h100(1), "1g.10gb"), h100(2)])

    assert told(script, scenario, tmp_path) == [
        3,
        "well",
        *["error 15"] * 6,
        "NVIDIA H100 80GB HBM3",
    ]


def test_a_function_fails_everywhere_or_for_one_gpu(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1), mig(h100(2), "1g.10gb")])
    scenario.fail("nvmlDeviceGetName", 999)
    scenario.fail("nvmlDeviceGetTemperature", "TIMEOUT", gpu=1)
    scenario.fail("nvmlDeviceGetHandleByIndex", 15, gpu=0)
    scenario.fail("nvmlDeviceGetMemoryInfo", 6, gpu=2, mig=0)
    script = """
one, two = device(1), device(2)
instance = ask("DeviceGetMigDeviceHandleByIndex", two, 0)
tell([device(0), [ask("DeviceGetName", h) for h in (one, two, instance)],
      [ask("DeviceGetTemperature", h, 0) for h in (one, two)],
      ask("DeviceGetMemoryInfo", instance), ask("DeviceGetMemoryInfo", two).total > 0])
"""

    assert told(script, scenario, tmp_path) == [
        "error 15",
        ["error 999"] * 3,
        ["error 10", 31],
        "error 6",
        True,
    ]


@pytest.mark.parametrize("code", [9, 18, 999])
def test_init_fails_and_heals(code: int, tmp_path: Path) -> None:
    scenario = Scenario([h100(0)])
    scenario.fail("nvmlInit", code)
    script = """
failed = ask("Init")
Scenario([h100(0)]).write(path)
tell([failed, ask("Init"), ask("DeviceGetCount")])
"""

    assert told(script, scenario, tmp_path, init=False) == [f"error {code}", None, 1]


def test_every_call_fails_at_once_after_access_was_revoked(tmp_path: Path) -> None:
    script = """
handle = device(0)
before = ask("DeviceGetName", handle)
scenario = Scenario([h100(0)])
scenario.fail("*", 999)
scenario.write(path)
tell([before, ask("DeviceGetName", handle), device(0), ask("DeviceGetCount"), ask("Shutdown")])
"""

    assert told(script, Scenario([h100(0)]), tmp_path) == [
        "NVIDIA H100 80GB HBM3",
        *["error 999"] * 4,
    ]


def test_some_calls_fail_and_the_rest_do_not(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1)])
    scenario.fail("nvmlDeviceGetPowerUsage", 10, times=2)
    scenario.fail("nvmlDeviceGetIndex", 999, gpu=1, after=1, times=1)
    scenario.fail("nvmlDeviceGetMinorNumber", 999, after=2)
    script = """tell([[ask("DeviceGet" + name, device(i)) for i in (0, 1, 1, 1)]
                      for name in ("PowerUsage", "Index", "MinorNumber")])"""

    assert told(script, scenario, tmp_path) == [
        ["error 10", "error 10", 71000, 71000],
        [0, 1, "error 999", 1],
        [0, 1, "error 999", "error 999"],
    ]


def test_a_rule_names_all_versions_of_a_function_or_one(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1), h100(2), h100(3)])
    scenario.fail("nvmlDeviceGetMemoryInfo", 999, gpu=0)
    scenario.fail("nvmlDeviceGetMemoryInfo_v1", 999, gpu=1)
    scenario.fail("nvmlDeviceGetMemoryInfo_v2", 999, gpu=2)
    scenario.fail("nvmlDeviceGet*Info*", 999, gpu=3)
    script = """tell([[isinstance(ask("DeviceGetMemoryInfo", device(i), version), str)
                       for version in (None, n.nvmlMemory_v2)] for i in range(4)]
                     + [ask("DeviceGetPciInfo", device(3)), ask("DeviceGetIndex", device(3))])"""

    assert told(script, scenario, tmp_path) == [
        [True, True],
        [True, False],
        [False, True],
        [True, True],
        "error 999",
        3,
    ]


def test_a_slow_function_is_slow_for_its_gpu_only_and_answers_late_news(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1)])
    scenario.slow("nvmlDeviceGetTemperature", 300, gpu=1)
    script = (
        BASE
        + """
def timed(index):
    start = time.monotonic()
    return [ask("DeviceGetTemperature", device(index), 0), time.monotonic() - start]

def change():
    scenario.gpus[1]["temperature"] = 90
    scenario.write(path)

quick = timed(0)
threading.Timer(0.05, change).start()
tell([quick, timed(1)])
"""
    )
    quick, slow = told(script, scenario, tmp_path)

    assert quick[0] == 31
    assert quick[1] < 0.25
    assert slow[0] == 90
    assert slow[1] >= 0.3


HANG = (
    BASE
    + """
answers = []
def hung(): answers.append(ask("DeviceGetPowerUsage", handle))
handle = device(1)
thread = threading.Thread(target=hung, daemon=True)
thread.start()
counts = Path(os.environ["FAKE_NVML_CALLS"])
while not calls(counts)["nvmlDeviceGetPowerUsage", 1]:
    time.sleep(0.002)
others = [ask("DeviceGetPowerUsage", device(0)), ask("DeviceGetName", handle)]
scenario.gpus[0]["power_usage"] = 5  # a change that does not heal
scenario.hang("nvmlDeviceGetPowerUsage", gpu=1)
scenario.write(path)
others.append(ask("DeviceGetPowerUsage", device(0)))
thread.join(0.1)
still = thread.is_alive()
scenario.heal()
scenario.gpus[1]["power_usage"] = 7
scenario.write(path)
"""
)


def test_a_hung_call_returns_when_the_scenario_heals_and_holds_up_nobody(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1)])
    scenario.hang("nvmlDeviceGetPowerUsage", gpu=1)
    script = HANG + "thread.join(10)\ntell([others, still, answers])"

    assert told(script, scenario, tmp_path, counts=tmp_path / "counts") == [
        [71000, "NVIDIA H100 80GB HBM3", 5],
        True,
        [7],
    ]


def test_a_call_may_hang_for_ever(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), h100(1)])
    scenario.hang("nvmlDeviceGetPowerUsage", gpu=1, forever=True)
    script = (
        HANG
        + """
thread.join(0.2)
tell([still, thread.is_alive(), answers, ask("DeviceGetPowerUsage", handle)])
os._exit(0)
"""
    )

    counts = tmp_path / "counts"
    assert told(script, scenario, tmp_path, counts=counts) == [True, True, [], 7]


@pytest.mark.parametrize(("segv", "end"), [(False, signal.SIGABRT), (True, signal.SIGSEGV)])
def test_a_call_crashes_the_process_and_its_count_survives(
    segv: bool, end: int, tmp_path: Path
) -> None:
    scenario = Scenario([h100(0), h100(1)])
    scenario.crash("nvmlDeviceGetName", gpu=1, segv=segv, after=1)
    script = """
for i in (0, 1, 1, 1):
    print(ask("DeviceGetName", device(i)), flush=True)
"""
    done = run(script, scenario, tmp_path, counts=tmp_path / "counts")

    assert done.returncode == -end
    assert done.stdout == "NVIDIA H100 80GB HBM3\n" * 2
    assert "nvmlDeviceGetName of gpu 1 crashes, as the scenario says" in done.stderr
    assert calls(tmp_path / "counts")["nvmlDeviceGetName", 1] == 2


@pytest.mark.parametrize("handle", ["kept", "None"])
def test_bad_handles_crash_where_the_scenario_says_so(handle: str, tmp_path: Path) -> None:
    script = (
        BASE
        + f"""
kept = device(1)
scenario.lose(1)
scenario.values["crash_on_bad_handle"] = "yes"
scenario.write(path)
tell([device(1), ask("DeviceGetName", device(0))])
ask("DeviceGetName", {handle})
"""
    )
    done = run(script, Scenario([h100(0), h100(1)]), tmp_path)

    assert done.stdout == '["error 15", "NVIDIA H100 80GB HBM3"]\n', "lookups are no crash"
    assert done.returncode == -signal.SIGSEGV


@pytest.mark.parametrize(("flag", "end"), [("yes", -signal.SIGABRT), ("no", 0)])
def test_shutdown_while_a_call_runs_aborts_where_the_scenario_says_so(
    flag: str, end: int, tmp_path: Path
) -> None:
    scenario = Scenario([h100(0)])
    scenario.values["abort_on_shutdown_while_busy"] = flag
    scenario.slow("nvmlDeviceGetName", 10_000)
    script = """
threading.Thread(target=ask, args=("DeviceGetName", device(0)), daemon=True).start()
while not calls(Path(os.environ["FAKE_NVML_CALLS"]))["nvmlDeviceGetName", 0]:
    time.sleep(0.002)
n.nvmlShutdown()
os._exit(0)
"""
    assert run(script, scenario, tmp_path, counts=tmp_path / "counts").returncode == end

    idle = "device(0)\nn.nvmlShutdown()"
    assert run(idle, scenario, tmp_path).returncode == 0


PROBE = """
library = ctypes.CDLL("libnvidia-ml.so.1")
names = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
         "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetCurrentClocksEventReasons",
         "nvmlDeviceGetProcessesUtilizationInfo", "nvmlDeviceGetTemperatureV",
         "nvmlDeviceGetAddressingMode", "nvmlDeviceGetName"]
tell(["".join("x" if hasattr(library, name) else "-" for name in names),
      isinstance(ask("DeviceGetMemoryInfo", device(), n.nvmlMemory_v2), str),
      isinstance(ask("DeviceGetMemoryInfo", device()), str),
      ask("DeviceGetComputeRunningProcesses_v3", device()),
      ask("DeviceGetComputeRunningProcesses_v2", device()),
      ask("DeviceGetCurrentClocksEventReasons", device()),
      ask("DeviceGetCurrentClocksThrottleReasons", device()),
      ask("DeviceGetTemperatureV", device(), 0)])
"""
MISSING = "error 13"


@pytest.mark.parametrize(
    ("driver", "symbols", "answers"),
    [
        ("470", "--x----x", [True, False, MISSING, [], MISSING, 1, MISSING]),
        ("525", "xxx----x", [False, False, [], [], MISSING, 1, MISSING]),
        ("535", "xxxx---x", [False, False, [], [], 1, 1, MISSING]),
        ("550", "xxxxx--x", [False, False, [], [], 1, 1, MISSING]),
        ("575", "xxxxxx-x", [False, False, [], [], 1, 1, 31]),
        ("all", "xxxxxxxx", [False, False, [], [], 1, 1, 31]),
    ],
)
def test_older_drivers_lack_newer_symbols(
    driver: str, symbols: str, answers: list[object], tmp_path: Path
) -> None:
    assert told(PROBE, Scenario([h100(0)]), tmp_path, driver=driver) == [symbols, *answers]

    scenario = Scenario([h100(0)])
    scenario.values["driver_symbols"] = driver
    assert told(PROBE, scenario, tmp_path) == ["xxxxxxxx", *answers], "the same by code 13"


def test_single_symbols_can_be_missing(tmp_path: Path) -> None:
    script = """tell([ask("DeviceGetName", device()), ask("DeviceGetPowerUsage", device()),
                      ask("DeviceGetTemperature", device(), 0)])"""
    expected = [MISSING, MISSING, 31]
    missing = ("nvmlDeviceGetName", "nvmlDeviceGetPowerUsage")

    assert told(script, Scenario([h100(0)]), tmp_path, driver="535", missing=missing) == expected
    scenario = Scenario([h100(0)])
    scenario.values["missing"] = ", ".join(missing)
    assert told(script, scenario, tmp_path) == expected


def test_calls_of_several_processes_add_up_by_function_and_gpu(tmp_path: Path) -> None:
    scenario = Scenario([h100(0), mig(h100(1), "1g.10gb")])
    counts = tmp_path / "counts"
    script = """
for _ in range(10):
    ask("DeviceGetName", device(1))
ask("DeviceGetName", ask("DeviceGetMigDeviceHandleByIndex", device(1), 0))
ask("DeviceGetFanSpeed", device(0))
ask("DeviceGetCount")
"""
    assert calls(counts) == {}
    run(script, scenario, tmp_path, counts=counts)
    first = calls(counts)
    assert run(script, scenario, tmp_path, counts=counts).returncode == 0

    assert first == {
        ("nvmlInitWithFlags", None): 1,
        ("nvmlDeviceGetHandleByIndex_v2", 1): 11,
        ("nvmlDeviceGetMigDeviceHandleByIndex", 1): 1,
        ("nvmlDeviceGetName", 1): 11,
        ("nvmlDeviceGetHandleByIndex_v2", 0): 1,
        ("nvmlDeviceGetFanSpeed", 0): 1,
        ("nvmlDeviceGetCount_v2", None): 1,
    }
    assert calls(counts) - first == first


def test_a_file_that_is_no_counts_file_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "letter"
    other.write_text("dear reader")
    done = run("tell(1)", Scenario([]), tmp_path, counts=other)

    assert "calls can't be counted" in done.stderr
    assert done.stdout == "1\n"
    assert other.read_text() == "dear reader"


def test_threads_may_call_while_the_file_changes(tmp_path: Path) -> None:
    script = """
stop = threading.Event()
seen, wrong = set(), []

def work():
    while not stop.is_set():
        handle = device(0)
        name = ask("DeviceGetName", handle)
        processes = ask("DeviceGetComputeRunningProcesses", handle)
        seen.add(name)
        if name not in ("A", "B") or any(p.usedGpuMemory != 2**20 for p in processes):
            wrong.append([name, processes])

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for turn in range(300):
    scenario = Scenario([h100(0)])
    scenario.gpus[0]["name"] = "AB"[turn % 2]
    for pid in range(turn % 7):
        scenario.process(0, pid + 1, 1)
    scenario.write(path)
stop.set()
for thread in threads:
    thread.join()
tell([sorted(seen), wrong])
"""
    scenario = Scenario([h100(0)])
    scenario.gpus[0]["name"] = "A"

    assert told(script, scenario, tmp_path) == [["A", "B"], []]


def test_healing_takes_back_rules_and_losses_only() -> None:
    scenario = Scenario([mig(h100(0), "1g.10gb"), h100(1)])
    scenario.process(1, 42, 100)
    healthy = scenario.text()
    scenario.fail("nvmlInit", 9)
    scenario.slow("nvmlDeviceGetName", 5, gpu=0, mig=0)
    scenario.hang("nvmlDeviceGetName", gpu=1)
    scenario.crash("nvmlDeviceGetName", gpu=1)
    scenario.lose(1)
    assert scenario.text() != healthy
    scenario.heal()

    assert scenario.text() == healthy
    assert isinstance(scenario.gpus[0].mig[0], Mig)


def test_several_test_runs_may_build_at_once() -> None:
    script = "from fake_nvml.scenario import library; print(library('535', ('nvmlInit_v2',)))"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    runs = [
        subprocess.Popen(["python3", "-c", script], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]

    folders = {run.communicate(timeout=60)[0].strip() for run in runs}
    assert folders == {str(library("535", ("nvmlInit_v2",)))}
    assert (Path(folders.pop()) / "libnvidia-ml.so.1").exists()


def test_an_unknown_driver_is_refused() -> None:
    with pytest.raises(ValueError, match=r"driver is one of 470, 525, .* found '999'"):
        library("999")
