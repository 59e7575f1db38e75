"""All readings of a host's GPUs side by side: a row a reading, a column a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gpumon.model import Gpu
from gpumon.units import UNKNOWN, clock, mib
from gpumon.web.gpus import clocks, percent, temperature


class Reading(NamedTuple):
    """One reading of all GPUs."""

    label: str
    values: list[str]


class Reason(NamedTuple):
    """Why a reading is unknown, and of which GPUs."""

    label: str
    why: str
    gpus: list[int]


def _unit(unit: str) -> Callable[[float], str]:
    return lambda value: f"{value:.0f} {unit}"


def _on(value: bool) -> str:
    return "on" if value else "off"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _words(value: str) -> str:
    return value.replace("_", " ")


_ROWS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("Name", "name", str),
    ("UUID", "uuid", str),
    ("PCI bus id", "pci_bus_id", str),
    ("Utilization", "utilization_percent", percent),
    ("Utilization, mean of 5 min", "utilization_5m_percent", percent),
    ("Utilization, mean of 30 min", "utilization_30m_percent", percent),
    ("Memory bandwidth used", "memory_utilization_percent", percent),
    ("Memory total", "memory_total_mib", mib),
    ("Memory used", "memory_used_mib", mib),
    ("Memory of no listed process", "unattributed_mib", mib),
    ("Memory reserved", "memory_reserved_mib", mib),
    ("Memory free", "memory_free_mib", mib),
    ("Temperature", "temperature_celsius", temperature),
    ("Power draw", "power_draw_watts", _unit("W")),
    ("Enforced power limit", "enforced_power_limit_watts", _unit("W")),
    ("SM clock", "sm_clock_mhz", _unit("MHz")),
    ("Memory clock", "memory_clock_mhz", _unit("MHz")),
    ("Clock event reasons", "clock_event_reasons", clocks),
    ("Fan speed", "fan_speed_percent", percent),
    ("Performance state", "performance_state", "P{}".format),
    ("ECC", "ecc_mode", _on),
    ("ECC corrected, since reset", "ecc_volatile_corrected", str),
    ("ECC uncorrected, since reset", "ecc_volatile_uncorrected", str),
    ("ECC corrected, ever", "ecc_aggregate_corrected", str),
    ("ECC uncorrected, ever", "ecc_aggregate_uncorrected", str),
    ("Memory rows replaced, corrected errors", "remapped_rows_corrected", str),
    ("Memory rows replaced, uncorrected errors", "remapped_rows_uncorrected", str),
    ("Memory rows wait for a reset", "remapped_rows_pending", _yes),
    ("A memory row could not be replaced", "remapped_rows_failure", _yes),
    ("Memory pages retired, corrected errors", "retired_pages_corrected", str),
    ("Memory pages retired, uncorrected errors", "retired_pages_uncorrected", str),
    ("Memory pages wait for a reset", "retired_pages_pending", _yes),
    ("Driver asks for", "recovery_action", _words),
    ("Missing since", "missing_since", clock),
    ("Compute mode", "compute_mode", _words),
    ("Persistence mode", "persistence_mode", _on),
    ("MIG mode", "mig_mode", _on),
    ("MIG mode after reset", "mig_mode_pending", _on),
    ("Encoder", "encoder_utilization_percent", percent),
    ("Decoder", "decoder_utilization_percent", percent),
    ("PCIe generation", "pcie_generation", str),
    ("PCIe lanes", "pcie_width", str),
)

_ONLY_WHEN_KNOWN = ("mig_mode_pending", "missing_since")
"""None says "nothing pending" or "not missing" here, so a row of "-" would mislead."""


def readings(gpus: list[Gpu]) -> list[Reading]:
    """Return a row for each reading that is known or missing; unknown is "-"."""
    rows = []
    for label, field, words in _ROWS:
        values = [getattr(gpu, field) for gpu in gpus]
        if field in _ONLY_WHEN_KNOWN and all(value is None for value in values):
            continue
        rows.append(Reading(label, [UNKNOWN if v is None else words(v) for v in values]))
    return rows


def reasons(gpus: list[Gpu]) -> list[Reason]:
    """Return why readings are unknown; GPUs with the same reason share a line."""
    labels = {field: label for label, field, _ in _ROWS}
    found: dict[tuple[str, str], list[int]] = {}
    for gpu in gpus:
        if gpu.error is not None:
            found.setdefault(("The whole GPU", gpu.error), []).append(gpu.index)
        for field, why in gpu.unknown.items():
            label = labels.get(field, field.replace("_", " ").capitalize())
            found.setdefault((label, why), []).append(gpu.index)
    return [Reason(label, why, indices) for (label, why), indices in found.items()]
