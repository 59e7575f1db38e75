"""Hosts of another gpumon server, shown as hosts here: never fresher than that server told.

What it says of a host is carried over, not judged anew: the inputs of the state rules stay with the
server that polls the host. Times of two machines' clocks are never compared.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from gpumon.cluster.status import ClusterStatus, GpuStatus, HostStatus
from gpumon.config import Config, HostEntry
from gpumon.model import HostSnapshot
from gpumon.states import DOWN_AFTER_SECONDS, GpuState, HostState, not_fresh
from gpumon.units import duration

MOST_HOPS = 4
"""Over so many servers a host may come; more is a mistake, or a loop without names."""


class Details(Protocol):
    """The whole readings of the other server's hosts, fetched when somebody asks."""

    def get(self, host: str) -> HostSnapshot | None:
        """Return what is there of a host, and see to it that there is more next time.

        For any thread; never waits. None: the other server has no reading of it.
        """


class Relayed(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of another server."""

    status: ClusterStatus
    details: Details


class Relay(msgspec.Struct, frozen=True, kw_only=True):
    """What another server told last, and when that came."""

    status: ClusterStatus
    details: Details
    received: float
    """When this picture came first, monotonic: an answer "unchanged" does not make it younger."""
    received_at: float
    """The same by this server's wall clock."""

    @property
    def tick(self) -> float:
        """How old a picture may have been when it was sent, in seconds (see Fleet.status)."""
        return max(1.0, self.status.poll_interval_seconds / 2)


class Loop(Exception):
    """The other server is this very server."""


def without_loops(status: ClusterStatus, instance: str) -> tuple[ClusterStatus, int]:
    """Return the picture without hosts that came through this server or over too many, and how
    many those are.

    `instance` is this server's. Raises Loop where the whole picture is this server's own.
    """
    if status.instance == instance:
        raise Loop
    hosts = [
        host for host in status.hosts if instance not in host.via and len(host.via) < MOST_HOPS
    ]
    left_out = len(status.hosts) - len(hosts)
    return msgspec.structs.replace(status, hosts=hosts), left_out


def relayed_name(entry: HostEntry, host: str) -> str:
    """Return what a host of the server `entry` is called here."""
    return f"{entry.name}:{host}"


def relayed_hosts(
    relay: Relay,
    entry: HostEntry,
    *,
    config: Config,
    failure: str | None,
    next_poll_seconds: float | None,
    now: float,
) -> list[HostStatus]:
    """Return the hosts of the server `entry` as they are shown here; `now` is monotonic.

    `failure` is the sentence why its last poll brought nothing.
    """
    waited = now - relay.received
    late = waited > 2 * max(config.poll_interval, relay.tick) + config.rpc_timeout
    silence = None
    if late:
        silence = f"its server {entry.name} " + (
            f"answers, but has told nothing new for {duration(waited)}"
            if failure is None
            else f"does not answer: {failure}"
        )
    return [
        _host(relay, told, entry, silence=silence, waited=waited, next_poll=next_poll_seconds)
        for told in relay.status.hosts
    ]


def _host(
    relay: Relay,
    told: HostStatus,
    entry: HostEntry,
    *,
    silence: str | None,
    waited: float,
    next_poll: float | None,
) -> HostStatus:
    older = waited + relay.tick
    state = told.state if silence is None else _without_word(told.state, waited)
    answered_at = None
    if told.answered_at is not None:
        # How long ago is a difference of the other server's clock alone.
        ago = max(0.0, relay.status.time - told.answered_at)
        answered_at = relay.received_at - relay.tick - ago
    reason = told.reason if silence is None else silence
    return msgspec.structs.replace(
        told,
        name=relayed_name(entry, told.name),
        address=entry.address,
        labels={**told.labels, **entry.labels},
        state=state,
        reason=reason,
        reason_kind=told.reason_kind if silence is None else "server silent",
        age_seconds=None if told.age_seconds is None else told.age_seconds + older,
        answered_at=answered_at,
        next_poll_seconds=next_poll,
        gpus=[_gpu(gpu, state, reason, drained=entry.drained) for gpu in told.gpus],
        via=[relay.status.instance, *told.via],
    )


def _without_word(told: HostState, waited: float) -> HostState:
    """Return the state of a host of whose server nothing was heard for `waited` seconds."""
    if told in ("never", "down"):
        return told
    return "down" if waited > DOWN_AFTER_SECONDS else "stale"


def _gpu(gpu: GpuStatus, host: HostState, reason: str | None, *, drained: bool) -> GpuStatus:
    if host != "fresh":
        why = reason or not_fresh(host)
        return _in_state(gpu, "unknown", gpu.reason if gpu.state == "unknown" else why)
    if drained and gpu.state in ("free", "busy", "idle"):
        return _in_state(gpu, "drained", None)
    return gpu


_NO_SINCE: dict[str, Any] = {"since": None, "since_at_least": False, "since_at_most": False}


def _in_state(gpu: GpuStatus, state: GpuState, reason: str | None) -> GpuStatus:
    parts = [
        msgspec.structs.replace(part, state=state, reason=reason, **_NO_SINCE) for part in gpu.mig
    ]
    return msgspec.structs.replace(gpu, state=state, reason=reason, mig=parts, **_NO_SINCE)
