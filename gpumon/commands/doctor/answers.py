"""What is wrong with a host though it answers, in one sentence, and which hosts nobody asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpumon.cluster.relayed import Relayed
from gpumon.cluster.sources.base import Reading
from gpumon.commands.doctor.finding import Finding, ok
from gpumon.config import Config, HostEntry
from gpumon.states import host_state
from gpumon.summary import HostSummary
from gpumon.units import duration

MOST_NAMED = 20
"""So many hosts stand in one line; the others are counted."""

_NOT_ASKED = {
    "self": "this machine, which gpumon doctor --agent looks at",
    "pushed": "pushing by itself, and the page shows when it did last",
    "simulated": "invented",
}


def is_asked(entry: HostEntry) -> bool:
    """Return whether this host can be asked from here."""
    return entry.source not in _NOT_ASKED


def not_asked(check: str, entries: Iterable[HostEntry]) -> Iterator[Finding]:
    """Name the hosts that can't be asked from here, a line for each reason."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        if not is_asked(entry):
            found.setdefault(_NOT_ASKED[entry.source], []).append(entry.name)
    for why, names in found.items():
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        yield ok(check, f"not asked, {why}: {', '.join(names[:MOST_NAMED])}{more}")


def trouble_of(reading: Reading, config: Config) -> str | None:
    """Return what is wrong with a host that gave this reading just now; None: nothing is."""
    if reading.relayed is not None:
        return _trouble_of_server(reading.relayed)
    return _trouble_of_host(reading.summary, config)


def _trouble_of_server(told: Relayed) -> str | None:
    hosts = told.status.hosts
    if not hosts:
        return "this gpumon server lists no hosts"
    if not any(host.state == "fresh" for host in hosts):
        return f"this gpumon server has no fresh reading of any of its {len(hosts)} hosts"
    return None


def _trouble_of_host(summary: HostSummary, config: Config) -> str | None:
    said = [] if summary.sampler_error is None else [summary.sampler_error]
    said += summary.errors
    if said:
        return said[0] if len(said) == 1 else f"{said[0]} (and {len(said) - 1} more)"
    age = summary.sample_age_seconds
    if age is None:
        return "it has no sample yet"
    state = host_state(
        0.0,
        age,
        poll_interval=config.poll_interval,
        rpc_timeout=config.rpc_timeout,
        sample_interval=summary.sample_interval_seconds,
    )
    if state != "fresh":
        return f"its last sample is {duration(age)} old"
    if summary.gpu_count is None:
        return "it does not tell how many GPUs it has"
    return "the driver works, but counts no GPU" if summary.gpu_count == 0 else None
