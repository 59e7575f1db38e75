"""What the front page and its plain text say, before either is laid out."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.cluster.status import ClusterStatus, ModelTotals
from gpumon.states import GPU_STATES, GpuState
from gpumon.units import clock, duration
from gpumon.web.hosts import HostRow, host_row
from gpumon.web.waste import Waste, longest_idle, wasted
from gpumon.web.words import counted

SIMULATED = "SIMULATED: these hosts and numbers are invented"

NO_HOSTS = "No hosts are configured. Write them into config.yml, then reload the server:"
EXAMPLE_HOSTS = ("hosts:", "  - gpu-host-1", "  - gpu-host-2")
NO_ANSWER = "No host has answered yet."
NO_WASTE = "Nothing is known to be wasted or broken."
NO_USERS = "Nobody holds a GPU, as far as the hosts answer."
NOTHING_FREE = "No GPU is free right now."


class Front(NamedTuple):
    """What stands between head and foot, in the order in which people ask."""

    models: list[ModelTotals]
    nothing_free: bool
    ask: list[Waste]
    """Whom to ask when nothing is free: the GPUs that are idle longest."""
    hosts: list[HostRow]
    waste: list[Waste]


def front(status: ClusterStatus) -> Front:
    """Return everything that the front page says about `status`."""
    waste = wasted(status)
    nothing_free = bool(status.models) and not any(m.counts.free for m in status.models)
    return Front(
        models=status.models,
        nothing_free=nothing_free,
        ask=longest_idle(waste, 5) if nothing_free else [],
        hosts=[host_row(host) for host in status.hosts],
        waste=waste,
    )


def counts(status: ClusterStatus) -> list[tuple[GpuState, int]]:
    """Return GPUs by state; drained ones only where there are any."""
    numbers = status.totals.gpus
    found: list[tuple[GpuState, int]] = [(state, getattr(numbers, state)) for state in GPU_STATES]
    return [(state, number) for state, number in found if number or state != "drained"]


def size(status: ClusterStatus) -> str:
    """Return "504 GPUs on 63 hosts"."""
    totals = status.totals
    return f"{counted(totals.gpus.total, 'GPU')} on {counted(totals.hosts, 'host')}"


def as_of(status: ClusterStatus) -> str:
    """Return the time of day of `status`, to the second."""
    return clock(status.time).split()[-1]


def freshness(status: ClusterStatus) -> str:
    """Return how old the readings are that count, and how often hosts are asked."""
    ages = [
        host.age_seconds
        for host in status.hosts
        if host.state == "fresh" and host.age_seconds is not None
    ]
    asked = f"hosts are asked every {status.poll_interval_seconds:g} s"
    return f"readings up to {duration(max(ages))} old, {asked}" if ages else f"no reading, {asked}"


def totals(status: ClusterStatus) -> str:
    """Return the whole cluster in one line."""
    numbers = status.totals
    states = ", ".join(f"{number} {state}" for state, number in counts(status))
    silent = [
        f"{number} {word}"
        for number, word in (
            (numbers.hosts_stale, "stale"),
            (numbers.hosts_down, "down"),
            (numbers.hosts_never, "not heard of yet"),
        )
        if number
    ]
    line = f"{size(status)}: {states}. {counted(numbers.hosts_fresh, 'host')} fresh"
    line += "".join(f", {part}" for part in silent) + "."
    if numbers.hosts_never:
        line += " How many GPUs a host has that never answered is not known: none are counted."
    return line
