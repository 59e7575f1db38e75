"""The ready scenario files: what a whole host of each kind looks like to the collector."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from collect_helpers import needs_root
from fake_nvml.scenario import FOLDER, Scenario

from gpumon.collect.mps import SHARED
from gpumon.collect.nvml_processes import UNRELIABLE
from gpumon.config import Limits
from gpumon.model import Gpu, HostSnapshot
from gpumon.states import Window, gpu_state, mig_state, whole_gpu
from gpumon.summary import GpuSummary, summarize

FILES = {path.stem: path for path in sorted((FOLDER / "scenarios").glob("*.scenario"))}

# Real processes stand in for these pids of the files.
PID = re.compile(r"(?<=process = )700\d")
SERVER = "nvidia-cuda-mps-server"

NOT_SUPPORTED = "not supported"
NOT_OFFERED = "not offered by this driver"
UNDER_MIG = "not available under MIG"
UNIFIED = "unified memory: GPU and host share it"
NOT_UTF8 = "the driver's text does not decode as UTF-8"

FIELDS = {
    # key of the language: field of the model
    "name": "name",
    "utilization.gpu": "utilization_percent",
    "utilization.memory": "memory_utilization_percent",
    "utilization.encoder": "encoder_utilization_percent",
    "utilization.decoder": "decoder_utilization_percent",
    "memory.total": "memory_total_mib",
    "memory.used": "memory_used_mib",
    "temperature": "temperature_celsius",
    "power_usage": "power_draw_watts",
    "power_limit.enforced": "enforced_power_limit_watts",
    "clock.sm": "sm_clock_mhz",
    "clock.memory": "memory_clock_mhz",
    "fan_speed": "fan_speed_percent",
    "performance_state": "performance_state",
    "clocks_event_reasons": "clock_event_reasons",
    "ecc_mode": "ecc_mode",
    "ecc.volatile.corrected": "ecc_volatile_corrected",
    "ecc.volatile.uncorrected": "ecc_volatile_uncorrected",
    "ecc.aggregate.corrected": "ecc_aggregate_corrected",
    "ecc.aggregate.uncorrected": "ecc_aggregate_uncorrected",
    "remapped_rows.corrected": "remapped_rows_corrected",
    "remapped_rows.failure": "remapped_rows_failure",
    "retired_pages.pending": "retired_pages_pending",
    "compute_mode": "compute_mode",
    "persistence_mode": "persistence_mode",
    "pcie.generation": "pcie_generation",
    "pcie.width": "pcie_width",
    "mig_mode": "mig_mode",
}


@dataclass
class FromFile(Scenario):
    """A scenario whose text is a file's."""

    content: str = ""

    def text(self) -> str:
        return self.content


@dataclass
class Truth:
    """What must be read from a file, by the index of the GPU."""

    states: str
    """One word per GPU; those of its instances in brackets behind it."""
    rows: dict[int, list[tuple[list[str], int | None]] | None] = field(default_factory=dict)
    """(kinds, MiB) of each process; None: the list is not known."""
    unknown: dict[int, dict[str, str]] = field(default_factory=dict)
    """Some of the fields that are not known, each with the reason."""
    list_read_by: str | None = "nvmlDeviceGetComputeRunningProcesses_v3"
    """The one version of the compute list that is asked; None: no GPU to ask."""


BUSY = [(["compute"], 20480)]
TRUTHS = {
    "desktop-2xrtx": Truth(
        "busy free",
        rows={0: [(["compute", "graphics"], 128), (["graphics"], 512)], 1: [(["graphics"], 4)]},
        unknown={0: {"ecc_mode": NOT_SUPPORTED, "mig_mode": NOT_SUPPORTED}},
    ),
    "driver-470": Truth(
        "busy free",
        rows={0: BUSY, 1: []},
        unknown={1: {"memory_reserved_mib": "the driver counts its reserve as used"}},
        list_read_by="nvmlDeviceGetComputeRunningProcesses_v2",
    ),
    "driver-525": Truth("busy free", rows={0: BUSY, 1: []}),
    "driver-535-scrambled": Truth(
        "busy unknown free",
        rows={0: None, 1: None, 2: []},
        unknown={
            0: {"processes": UNRELIABLE.reason},
            1: {"processes": UNRELIABLE.reason},
        },
    ),
    "driver-550": Truth("busy free", rows={0: BUSY, 1: []}),
    "gb10": Truth(
        "busy",
        rows={0: [(["compute"], 9216)]},
        unknown={0: {"memory_total_mib": UNIFIED, "memory_used_mib": UNIFIED}},
    ),
    "healthy-8xh100": Truth(" ".join(["free"] * 8), rows={7: []}),
    "jetson-orin": Truth(
        "unknown",
        rows={0: None},
        unknown={
            0: {
                "memory_total_mib": UNIFIED,
                "memory_used_mib": UNIFIED,
                "utilization_percent": NOT_SUPPORTED,
                "temperature_celsius": NOT_SUPPORTED,
                "power_draw_watts": NOT_SUPPORTED,
                "processes": NOT_SUPPORTED,
            }
        },
    ),
    "mig-a100": Truth(
        "busy[busy,free,free,busy,free,free,free] free",
        rows={0: [], 1: []},
        unknown={
            0: {"utilization_percent": UNDER_MIG, "encoder_utilization_percent": UNDER_MIG},
        },
    ),
    "mixed": Truth(
        "busy free fault busy[busy,free] fault",
        rows={0: [(["compute"], 62400)], 1: [], 2: None},
        unknown={3: {"utilization_percent": UNDER_MIG}},
    ),
    "mps": Truth(
        "busy busy",
        rows={
            0: [(["compute"], 30), (["mps"], 4096), (["mps"], 3072)],
            1: [(["compute"], 1024)],
        },
    ),
    "no-gpus": Truth("", list_read_by=None),
    "vgpu": Truth(
        "unknown busy",
        rows={0: None, 1: None},
        unknown={
            0: {
                "fan_speed_percent": NOT_SUPPORTED,
                "power_draw_watts": NOT_SUPPORTED,
                "ecc_volatile_uncorrected": NOT_SUPPORTED,
                "processes": NOT_SUPPORTED,
            }
        },
    ),
    "wsl": Truth(
        "busy free",
        rows={0: [(["compute"], None), (["compute", "graphics"], None)], 1: []},
        unknown={0: {"name": NOT_UTF8, "enforced_power_limit_watts": NOT_SUPPORTED}},
    ),
}


def library_of(text: str) -> str:
    """Return the library variant that the head of a file names."""
    head = text[: text.index("\ndriver")]
    found = re.search(r"Goes with\s(?:# )?build(?:/(\d+))?[.,]", head)
    assert found, "the head says: Goes with build/NNN."
    return found[1] or "all"


def keys_of(text: str) -> list[dict[str, str]]:
    """Return the keys of each GPU section, as far as they have a value."""
    gpus: list[dict[str, str]] = []
    keys: dict[str, str] = {}
    for line in text.splitlines():
        words = re.sub(r"(^|\s)#.*", "", line).split()
        if words[:1] == ["gpu"]:
            keys = dict(gpus[int(words[3])]) if "like" in words else {}
            gpus.append(keys)
        elif words[:1] == ["mig"]:
            keys = {}
        elif "=" in words:
            keys[words[0]] = words[-1]
    return [{key: value for key, value in gpu.items() if value != "absent"} for gpu in gpus]


def start(make_host, spawn, name: str):
    """Return a host that plays the file, with real processes behind the pids to be replaced."""
    text = FILES[name].read_text()
    pids: dict[str, str] = {}

    def real(found: re.Match[str]) -> str:
        if found[0] not in pids:
            program = SERVER if name == "mps" and found[0] == "7001" else "trainer"
            pids[found[0]] = str(spawn([program, "600"], executable="/bin/sleep").pid)
        return pids[found[0]]

    host = make_host(driver=library_of(text))
    host.scenario = FromFile(content=PID.sub(real, text))
    host.restart()
    return host


def state_words(snapshot: HostSnapshot) -> str:
    """Return the states by gpumon.states, written as in Truth."""
    return " ".join(_words(gpu) for gpu in summarize(snapshot).gpus)


def _words(gpu: GpuSummary) -> str:
    watched, limits = Window(), Limits()
    whole = whole_gpu(gpu, watched, host="fresh", host_reason=None, drained=False, now=0.0)
    state = gpu_state(gpu, watched, whole, limits=limits, now=0.0).state
    parts = [mig_state(mig, watched, whole, limits=limits, now=0.0).state for mig in gpu.mig]
    return f"{state}[{','.join(parts)}]" if parts else state


def assert_nothing_unknown_is_shown(gpu: Gpu, keys: dict[str, str]) -> None:
    """Compare with the file: what the driver does not say is None, and all that is has a reason."""
    for key, name in FIELDS.items():
        value = getattr(gpu, name)
        if key not in keys:
            assert value is None, f"gpu {gpu.index}: {name} is {value} though the driver is silent"
        assert (value is None) == (name in gpu.unknown), f"gpu {gpu.index}: {name} has no reason"


def test_every_scenario_file_has_its_truth_here():
    assert set(FILES) == set(TRUTHS)


@pytest.mark.parametrize("name", TRUTHS)
def test_the_manual_lists_every_scenario_with_its_library(name):
    library = library_of(FILES[name].read_text())
    folder = "build" if library == "all" else f"build/{library}"
    assert f"| `{name}` | `{folder}` |" in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("name", TRUTHS)
def test_a_ready_scenario_is_read_truly(make_host, spawn, name):
    truth, keys = TRUTHS[name], keys_of(FILES[name].read_text())
    host = start(make_host, spawn, name)
    for later in (0.0, 5.0):  # the second sample knows what need not be asked again
        snapshot = host.sample(later=later)
        assert (snapshot.errors, snapshot.error_kind) == ([], None)
        assert snapshot.gpu_count == len(keys)
        assert [gpu.index for gpu in snapshot.gpus] == list(range(len(keys)))
        assert state_words(snapshot) == truth.states
        for gpu in snapshot.gpus:
            assert (gpu.error is not None) == ("lost" in keys[gpu.index])
            assert gpu.uuid == keys[gpu.index]["uuid"] or gpu.lost
            if gpu.error is None:
                assert_nothing_unknown_is_shown(gpu, keys[gpu.index])
        for index, reasons in truth.unknown.items():
            assert reasons.items() <= snapshot.gpus[index].unknown.items()
            for field_name in reasons:
                assert getattr(snapshot.gpus[index], field_name) is None
        for index, rows in truth.rows.items():
            found = snapshot.gpus[index].processes
            told = None if found is None else [(p.kinds, p.gpu_memory_used_mib) for p in found]
            assert told == rows
    read_by = {
        symbol
        for (symbol, _), count in host.calls().items()
        if count and symbol.startswith("nvmlDeviceGetComputeRunningProcesses")
    }
    assert read_by == ({truth.list_read_by} if truth.list_read_by else set())


def test_seven_instances_show_who_holds_which(make_host, spawn):
    parent, whole = start(make_host, spawn, "mig-a100").sample().gpus
    assert [instance.name for instance in parent.mig] == ["1g.5gb"] * 7
    assert [len(instance.processes) for instance in parent.mig] == [1, 0, 0, 0, 0, 0, 0]
    assert [instance.memory_used_mib for instance in parent.mig] == [2061, 0, 0, 1107, 0, 0, 0]
    assert (whole.mig_mode, whole.utilization_percent) == (False, 0)


@needs_root
def test_an_mps_server_is_nobodys_where_its_clients_are_not_listed(make_host, spawn):
    listed, hidden = start(make_host, spawn, "mps").sample().gpus
    assert [row.program for row in listed.processes] == [SERVER, "trainer", "trainer"]
    assert all(row.user is not None for row in listed.processes)
    assert [(row.user, row.note) for row in hidden.processes] == [(None, SHARED)]


def test_windows_tells_neither_memory_nor_share_of_a_process(make_host, spawn):
    gpu = start(make_host, spawn, "wsl").sample().gpus[0]
    assert [row.program for row in gpu.processes] == ["trainer", "trainer"]
    assert [row.sm_utilization_percent for row in gpu.processes] == [None, None]
    assert gpu.unattributed_mib is None
    holders = summarize(HostSnapshot(gpus=[gpu])).gpus[0].holders
    assert [holder.gpu_memory_used_mib for holder in holders] == [None]


def test_a_jetson_that_supports_hardly_anything_is_not_called_broken(make_host, spawn):
    host = start(make_host, spawn, "jetson-orin")
    for later in (0.0, 5.0, 60.0):  # asked, kept from before, asked again
        snapshot = host.sample(later=later)
        assert (snapshot.errors, snapshot.gpus[0].error) == ([], None)
        assert snapshot.gpus[0].unified_memory
