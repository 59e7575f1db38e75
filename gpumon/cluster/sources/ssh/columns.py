"""The columns that nvidia-smi is asked for, and what each means to the model.

Names of columns change between drivers: of one with two names, the second is asked for where the
first is refused. What no name brings is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpumon.cluster.sources.foreign import MOST_MIB, put
from gpumon.cluster.sources.ssh.table import number, why_not
from gpumon.collect.clock_events import reason_words
from gpumon.model import Gpu
from gpumon.text import clean

_MOST_ERRORS = 2**53

Fill = Callable[[Gpu, str, str], None]
"""Sets a field of a GPU from the text in its column."""


class Column(NamedTuple):
    """One column. All its names are read, whichever was asked for."""

    field: str
    """Of the GPU; "" for what is not the GPU's own."""
    names: tuple[str, ...]
    fill: Fill | None = None


def _number(low: float, high: float, kind: Callable[[float], Any] = round) -> Fill:
    def fill(gpu: Gpu, field: str, text: str) -> None:
        value = number(text)
        if value is None:
            gpu.unknown[field] = why_not(text)
        else:
            put(gpu, field, value, low, high, kind)

    return fill


def _one_of(words: dict[str, Any]) -> Fill:
    def fill(gpu: Gpu, field: str, text: str) -> None:
        word = text.strip().lower()
        if word in words:
            setattr(gpu, field, words[word])
        else:
            gpu.unknown[field] = why_not(text)

    return fill


def _text(gpu: Gpu, field: str, text: str) -> None:
    if not text or text.startswith("[") or text == "N/A":
        gpu.unknown[field] = why_not(text)
    else:
        setattr(gpu, field, clean(text))


def _performance_state(gpu: Gpu, field: str, text: str) -> None:
    _number(0, 15)(gpu, field, text.removeprefix("P"))


def _clock_events(gpu: Gpu, field: str, text: str) -> None:
    """Read a bit mask such as 0x0000000000000004."""
    try:
        bits = int(text, 16)
    except ValueError:
        gpu.unknown[field] = why_not(text)
        return
    if 0 <= bits < 2**64:
        gpu.clock_event_reasons = reason_words(bits)
    else:
        gpu.unknown[field] = why_not(text)


def _mig_mode(gpu: Gpu, _: str, text: str) -> None:
    """Read whether MIG is on; a GPU that has no MIG says that it is not available."""
    if text in ("Enabled", "Disabled"):
        gpu.mig_mode = text == "Enabled"
        return
    gpu.unknown["mig_mode"] = why_not(text)
    if text.strip("[]") not in ("N/A", "Not Supported"):
        gpu.unknown["mig"] = gpu.unknown["mig_mode"]


_MIB = _number(0, MOST_MIB)
_PERCENT = _number(0, 100)
_ERRORS = _number(0, _MOST_ERRORS)
_WATTS = _number(0, 10_000, float)
_MHZ = _number(0, 20_000)
_ENABLED = _one_of({"enabled": True, "disabled": False})
_YES = _one_of({"yes": True, "no": False})
_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")

COLUMNS = (
    # These first: they tell a query of ours apart from other people's (see script.py).
    Column("", ("index",)),
    Column("uuid", ("uuid", "gpu_uuid"), _text),
    Column("pci_bus_id", ("pci.bus_id", "gpu_bus_id"), _text),
    Column("name", ("name", "gpu_name"), _text),
    Column("", ("count",)),
    Column("", ("driver_version",)),
    Column("utilization_percent", ("utilization.gpu",), _PERCENT),
    Column("memory_utilization_percent", ("utilization.memory",), _PERCENT),
    Column("memory_total_mib", ("memory.total",), _number(1, MOST_MIB)),
    Column("memory_used_mib", ("memory.used",), _MIB),
    Column("memory_free_mib", ("memory.free",), _MIB),
    Column("memory_reserved_mib", ("memory.reserved",), _MIB),
    Column("temperature_celsius", ("temperature.gpu",), _number(-50, 250)),
    Column("power_draw_watts", ("power.draw",), _WATTS),
    Column("enforced_power_limit_watts", ("enforced.power.limit",), _WATTS),
    Column("sm_clock_mhz", ("clocks.current.sm", "clocks.sm"), _MHZ),
    Column("memory_clock_mhz", ("clocks.current.memory", "clocks.mem"), _MHZ),
    Column("fan_speed_percent", ("fan.speed",), _number(0, 1000)),
    Column("performance_state", ("pstate",), _performance_state),
    Column(
        "clock_event_reasons",
        ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
        _clock_events,
    ),
    Column("ecc_mode", ("ecc.mode.current",), _ENABLED),
    Column("ecc_volatile_corrected", ("ecc.errors.corrected.volatile.total",), _ERRORS),
    Column("ecc_volatile_uncorrected", ("ecc.errors.uncorrected.volatile.total",), _ERRORS),
    Column("ecc_aggregate_corrected", ("ecc.errors.corrected.aggregate.total",), _ERRORS),
    Column("ecc_aggregate_uncorrected", ("ecc.errors.uncorrected.aggregate.total",), _ERRORS),
    Column("compute_mode", ("compute_mode",), _one_of({mode: mode for mode in _COMPUTE_MODES})),
    Column("persistence_mode", ("persistence_mode",), _ENABLED),
    Column("retired_pages_pending", ("retired_pages.pending",), _YES),
    Column("pcie_generation", ("pcie.link.gen.current",), _number(1, 20)),
    Column("pcie_width", ("pcie.link.width.current",), _number(1, 64)),
    Column("mig_mode", ("mig.mode.current",), _mig_mode),
)

NAMES = frozenset(name for column in COLUMNS for name in column.names)


class Query:
    """Which columns one host is asked for: all but those that its nvidia-smi refused."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The names to ask for, one a column."""
        asked = []
        for column in COLUMNS:
            name = next((name for name in column.names if name not in self._refused), None)
            if name is not None:
                asked.append(name)
        return asked

    def refuse(self, name: str) -> bool:
        """Leave a name out from now on; return whether it is one that was asked for."""
        if name not in self.names:
            return False
        self._refused.add(name)
        return True

    def forget(self) -> None:
        """Ask for everything again: the driver is another one."""
        self._refused.clear()


def fill(gpu: Gpu, row: dict[str, str]) -> None:
    """Set the fields of `gpu` from a row of the table."""
    for column in COLUMNS:
        text = next((row[name] for name in column.names if name in row), None)
        if column.fill is None:
            continue
        if text is not None:
            column.fill(gpu, column.field, text)
