"""NVML calls per sample, by the fake's own counters, and CPU with what is done once a minute."""

from __future__ import annotations

import statistics
from collections import Counter

from fake_nvml.scenario import calls

from agent_cost import contender
from agent_cost.children import Trouble
from agent_cost.contender import Contender
from agent_cost.settings import Settings
from agent_cost.table import Budget, Result, Table, ratio
from agent_cost.world import GPUS, world

MOST_CALLS = 150
MINUTES = 3

STATIC = (
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetBoardPartNumber",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetVbiosVersion",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
)
"""What can't change while the driver is loaded; with any version of the function."""


def run(settings: Settings) -> Result:
    """Count the calls of each sample, at every size."""
    table = Table(
        f"NVML calls and CPU per sample of {GPUS} GPUs, one sample per 5 s for {MINUTES} minutes",
        [
            "GPUs x processes",
            "calls: first",
            "later: median",
            "later: most",
            "static, asked again",
            "CPU ms: first",
            "later: median",
            "later: mean",
            "later: most",
            "mean, of the floor",
        ],
        notes=[
            "The clock is turned forward by hand, so what is done once a minute is in it.",
            "CPU of the collector without the encoding of the snapshot.",
        ],
    )
    most, repeated = 0, set[str]()
    for size in settings.sizes:
        settings.say(f"calls: {GPUS} x {size}")
        with (
            world(settings.folder, size) as host,
            contender.counting(host, settings.own.python) as own,
            contender.floor(host, settings.own.python) as floor,
        ):
            floor.warm_up()
            counts, static = _samples(own, floor)
        later, cpu = counts[1:], own.cpu_ms[1:]
        table.add(
            host.name,
            counts[0],
            f"{statistics.median(later):.0f}",
            max(later),
            ", ".join(sorted(static)) or "none",
            f"{own.cpu_ms[0]:.1f}",
            f"{statistics.median(cpu):.2f}",
            f"{statistics.mean(cpu):.2f}",
            f"{max(cpu):.1f}",
            ratio([statistics.mean(cpu)], floor.cpu_ms),
        )
        most, repeated = max(most, *later), repeated | static
    again = ", ".join(sorted(repeated)) or "none"
    return Result(
        [table],
        [
            Budget(
                "NVML calls per sample", f"<= {MOST_CALLS}", f"{most} at most", most <= MOST_CALLS
            ),
            Budget("static fields asked again", "none", again, not repeated),
        ],
    )


def _samples(own: Contender, floor: Contender) -> tuple[list[int], set[str]]:
    """Take all samples; return their numbers of calls, and what static fields were asked again."""
    counts: list[int] = []
    static: set[str] = set()
    for number in range(1 + MINUTES * 12):
        before = calls(own.counts)
        own.measure(1)
        if own.trouble is not None:
            raise Trouble(own.trouble)
        asked = calls(own.counts) - before
        counts.append(sum(asked.values()))
        if number > 0:
            static |= _static(asked)
        if number % 4 == 0:
            floor.measure(1)
    return counts, static


def _static(asked: Counter[tuple[str, int | None]]) -> set[str]:
    """Return the functions among `asked` whose answers can't have changed."""
    names = {name for name, _ in asked}
    return {name for name in names if name.partition("_")[0] in STATIC}
