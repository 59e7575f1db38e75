"""What is wasted or broken, worst first: one list for page and text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpumon.cluster.shares import parts
from gpumon.cluster.status import ClusterStatus, GpuStatus, HostStatus, MigStatus
from gpumon.cluster.totals import counted_gpus
from gpumon.cluster.visible import SOMEBODY
from gpumon.units import mib
from gpumon.web import advice
from gpumon.web.holding import owners_by_rule, users
from gpumon.web.hosts import has_readings
from gpumon.web.words import counted

KINDS = ("fault", "down", "error", "never", "unknown", "warning", "ghost", "idle", "stale", "note")
"""What a row may be about, worst first."""


class Waste(NamedTuple):
    """One row of the list."""

    kind: str
    host: str
    gpus: list[int]
    """Indices; empty where the whole host is meant."""
    users: list[str | None]
    by_rule: set[str]
    """Those of `users` that are owners by a rule."""
    what: str
    since: float | None
    at_least: bool
    cost: float
    """GPU-hours lost so far where known, to put the worst of a kind first."""
    advice: str


def wasted(status: ClusterStatus) -> list[Waste]:
    """Return all that is wasted or broken in the cluster, worst first."""
    own = _own_gpus(status.hosts)
    rows = [row for host in status.hosts for row in _of_host(host, own[host.name], status.time)]
    rows.sort(key=lambda row: (KINDS.index(row.kind), -row.cost))
    return rows


class Sum(NamedTuple):
    """All rows of one kind, in a few words."""

    kind: str
    what: str
    """"5 GPUs", "2 hosts", "24 GPUs (at least 712 GPU-hours)"."""


def summary(rows: Iterable[Waste]) -> list[Sum]:
    """Return how much there is of each kind, worst first; notes are no waste and are left out."""
    kinds: dict[str, list[Waste]] = {}
    for row in rows:
        kinds.setdefault(row.kind, []).append(row)
    return [Sum(kind, _sum(kinds[kind])) for kind in KINDS if kind in kinds and kind != "note"]


def _sum(rows: list[Waste]) -> str:
    gpus = {(row.host, gpu) for row in rows for gpu in row.gpus}
    hosts = {row.host for row in rows if not row.gpus}
    words = [counted(len(gpus), "GPU")] if gpus else []
    words += [counted(len(hosts), "host")] if hosts else []
    if rows[0].kind == "idle" and any(row.since is not None for row in rows):
        least = "at least " if any(row.at_least or row.since is None for row in rows) else ""
        hours = f"{least}{sum(row.cost for row in rows):.0f} GPU-hours"
        return f"{words[0]} ({hours})"
    return ", ".join(words)


def longest_idle(rows: Iterable[Waste], most: int) -> list[Waste]:
    """Return the rows of idle GPUs that began first: whom to ask when nothing is free."""
    idle = [(row.since, row) for row in rows if row.kind == "idle" and row.since is not None]
    return [row for _, row in sorted(idle, key=lambda pair: pair[0])[:most]]


def _own_gpus(hosts: list[HostStatus]) -> dict[str, list[GpuStatus]]:
    """Return each host's GPUs; those of one machine under two names are only one host's."""
    own: dict[str, list[GpuStatus]] = {host.name: [] for host in hosts}
    for host, gpu in counted_gpus(hosts):
        own[host.name].append(gpu)
    return own


def _of_host(host: HostStatus, gpus: list[GpuStatus], now: float) -> Iterator[Waste]:
    if host.state == "never" and host.reason_kind is None:
        return  # not asked yet: nothing is wrong with it so far
    if host.state != "fresh":
        yield _silent(host, now)
        return
    kind = "note" if has_readings(host) else "error"
    for error in host.errors or ([host.reason] if host.reason else []):
        yield _row(kind, host, [], error, advice=advice.for_error(host.reason_kind))
    for note in host.notes:
        yield _row("note", host, [], note, advice="")
    yield from _unreadable(host, gpus)
    yield from _warnings(host, gpus)
    yield from _ghosts(host, gpus)
    yield from _idle(host, gpus, now)


def _silent(host: HostStatus, now: float) -> Waste:
    """Return the row of a host whose readings are old or missing."""
    kind: str = host.state
    what = host.reason or ("has not answered yet" if kind == "never" else "no fresh reading")
    row = _row(kind, host, host.gpus, what, advice=advice.for_host(host.reason_kind))
    age = 0.0 if host.age_seconds is None else host.age_seconds
    return row._replace(
        gpus=[],
        since=None if host.age_seconds is None else now - age,
        cost=age / 3600 * max(1, len(host.gpus)),
    )


def _unreadable(host: HostStatus, gpus: list[GpuStatus]) -> Iterator[Waste]:
    """Yield broken and unreadable GPUs; those with the same reason share a row."""
    groups: dict[tuple[str, str], list[GpuStatus]] = {}
    for gpu in gpus:
        if gpu.state in ("fault", "unknown"):
            groups.setdefault((gpu.state, gpu.reason or gpu.state), []).append(gpu)
    for (state, reason), alike in groups.items():
        what_to_do = advice.for_fault(reason) if state == "fault" else advice.UNREADABLE
        yield _begun(_row(state, host, alike, reason, advice=what_to_do), alike)


def _warnings(host: HostStatus, gpus: list[GpuStatus]) -> Iterator[Waste]:
    """Yield what wants attention on GPUs that work; those with the same warning share a row.

    When it began is not told here: the host's page says it, and what to do.
    """
    groups: dict[str, list[GpuStatus]] = {}
    for gpu in gpus:
        for warning in dict.fromkeys(gpu.warnings):
            groups.setdefault(warning, []).append(gpu)
    for warning, alike in groups.items():
        yield _row("warning", host, alike, warning, advice="")


def _ghosts(host: HostStatus, gpus: list[GpuStatus]) -> Iterator[Waste]:
    """Yield GPUs and MIG instances that are held by memory alone."""
    for gpu in gpus:
        for part in parts(gpu):
            if part.state in ("busy", "idle") and not part.holders:
                what = f"{mib(part.memory_used_mib)} in use, no process visible"
                if part.state == "busy" and part.reason:
                    what = part.reason
                if isinstance(part, MigStatus):
                    what = f"MIG instance {part.index}: {what}"
                row = _row("ghost", host, [gpu], what, advice=advice.GHOST)
                yield _begun(row._replace(users=[]), [part])


def _idle(host: HostStatus, gpus: list[GpuStatus], now: float) -> Iterator[Waste]:
    """Yield held GPUs that nobody uses; those of the same users share a row.

    Where names are hidden or not known nobody can tell whether the users are the same: those GPUs
    have rows of their own.
    """
    groups: dict[tuple[str | int | None, ...], list[GpuStatus]] = {}
    for gpu in gpus:
        if gpu.state == "idle" and gpu.holders:
            owners = users(gpu)
            alone = [gpu.index] if None in owners or SOMEBODY in owners else []
            groups.setdefault((*sorted(owners, key=str), *alone), []).append(gpu)
    for alike in groups.values():
        what_to_do = advice.for_idle(users(alike[0]))
        row = _begun(_row("idle", host, alike, "", advice=what_to_do), alike)
        starts = [gpu.since for gpu in alike if gpu.since is not None]
        hours = sum(max(0.0, now - began) for began in starts) / 3600
        memory = [gpu.memory_used_mib for gpu in alike if gpu.memory_used_mib is not None]
        what = f"{mib(sum(memory))} held, not used" if memory else "held, not used"
        if starts:
            what += f": {hours:.1f} GPU-hours"
        yield row._replace(what=what, cost=hours)


def _begun(row: Waste, gpus: Sequence[GpuStatus | MigStatus]) -> Waste:
    """Return the row with the time when it began on the first of `gpus`."""
    runs = [(gpu.since, gpu.since_at_least) for gpu in gpus if gpu.since is not None]
    since, at_least = min(runs, default=(None, False))
    return row._replace(since=since, at_least=at_least)


def _row(kind: str, host: HostStatus, gpus: list[GpuStatus], what: str, *, advice: str) -> Waste:
    owners = list(dict.fromkeys(user for gpu in gpus for user in users(gpu)))
    return Waste(
        kind=kind,
        host=host.name,
        gpus=[gpu.index for gpu in gpus],
        users=owners,
        by_rule=owners_by_rule(gpus),
        what=what,
        since=None,
        at_least=False,
        cost=0.0,
        advice=advice,
    )
