"""The server's `/metrics` (the whole cluster) and the list of agents for Prometheus. Pure.

See docs/prometheus.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gpumon.cluster.shares import holding
from gpumon.cluster.status import ClusterStatus, GpuStatus, HostStatus
from gpumon.config import HostEntry, MetricsConfig
from gpumon.http.sockets import join_address
from gpumon.metrics.exposition import Exposition, Metric, label_text, mib, share, with_labels
from gpumon.metrics.gpus import (
    BUILD,
    CERTIFICATE,
    MIG_STATE,
    STATE,
    USERS_LEFT_OUT,
    add_mig_readings,
    add_readings,
    add_since,
    add_state,
    add_users,
    gpu_labels,
    kept_users,
    mig_labels,
)
from gpumon.states import GPU_STATES, HOST_STATES
from gpumon.version import __version__

MOST_USERS = 1000
"""So many users of the cluster have samples of their own."""

SIMULATED = Metric("gpumon_simulated", "Whether any host is invented.")
POLL_INTERVAL = Metric("gpumon_poll_interval_seconds", "Seconds between two polls of a host.")
POLLS = Metric("gpumon_polls_total", "Polls of hosts that have ended.", kind="counter")
FAILURES = Metric(
    "gpumon_poll_failures_total", "Polls that brought nothing, by reason.", kind="counter"
)
HOSTS = Metric("gpumon_hosts", "Hosts of the configuration by state.")
GPUS = Metric("gpumon_gpus", "GPUs of the cluster by state, each counted once.")
HOST_STATE = Metric("gpumon_host_state", "Whether the host is in this state: 1 in one, else 0.")
HOST_REASON = Metric("gpumon_host_problem", "What is wrong with the host now, in a short word.")
HOST_AGE = Metric("gpumon_host_reading_age_seconds", "How old the host's reading is.")
ANSWERED = Metric(
    "gpumon_host_answered_timestamp_seconds", "The host's last good answer; epoch seconds."
)
VERSIONS = Metric("gpumon_host_info", "Versions of agent, driver and CUDA on the host.")
GPU_COUNT = Metric("gpumon_host_gpus", "GPUs that the driver counts.")
HOST_ERRORS = Metric("gpumon_host_errors", "What is wrong with the host's readings as a whole.")
CPU = Metric("gpumon_host_cpu_utilization_ratio", "CPU time in use, 0 to 1.")
MEMORY = Metric("gpumon_host_memory_total_bytes", "Memory of the host.")
MEMORY_LEFT = Metric("gpumon_host_memory_available_bytes", "Memory of the host for programs.")
USER_GPUS = Metric("gpumon_user_gpus", "GPUs that the user holds on fresh hosts.")
USER_IDLE = Metric("gpumon_user_idle_gpus", "Those of them that are idle.")
USER_MEMORY = Metric("gpumon_user_memory_used_bytes", "GPU memory of the user on fresh hosts.")


class PollCounts(msgspec.Struct, kw_only=True, frozen=True):
    """How the polls of all hosts have ended since the server began."""

    answered: int = 0
    failed: dict[str, int] = {}
    """By reason, the short words of SourceError."""


def metrics(status: ClusterStatus, polls: PollCounts, config: MetricsConfig) -> bytes:
    """Return the cluster in Prometheus' text format.

    What is not known is not there: of a host that is not fresh no reading, only its state, its age
    and that its GPUs are unknown.
    """
    out = Exposition()
    out.add(BUILD, label_text(version=__version__, part="server"), 1)
    out.add(SIMULATED, "", status.simulated)
    out.add(POLL_INTERVAL, "", status.poll_interval_seconds)
    for part, ends in (
        ("client", status.certificate_ends.client_ends_at),
        ("authority", status.certificate_ends.authority_ends_at),
    ):
        out.add(CERTIFICATE, label_text(certificate=part), ends)
    out.add(POLLS, "", polls.answered + sum(polls.failed.values()))
    for reason, count in polls.failed.items():
        out.add(FAILURES, label_text(reason=reason), count)
    _add_totals(out, status)
    kept: frozenset[str | None] = frozenset()
    if config.users:
        kept = _add_user_totals(out, status)
    for host in status.hosts:
        _add_host(out, host)
    for host in status.hosts:
        for gpu in host.gpus:
            _add_gpu(out, host, gpu, kept)
    return out.text()


def _add_totals(out: Exposition, status: ClusterStatus) -> None:
    totals = status.totals
    for state in HOST_STATES:
        out.add(HOSTS, label_text(state=state), getattr(totals, f"hosts_{state}"))
    if totals.gpus is not None:
        for known in GPU_STATES:
            out.add(GPUS, label_text(state=known), getattr(totals.gpus, known))


def _add_user_totals(out: Exposition, status: ClusterStatus) -> frozenset[str | None]:
    """Add what each user holds; return who has samples of their own."""
    kept, left_out = kept_users(_users(status), MOST_USERS)
    out.add(USERS_LEFT_OUT, "", left_out)
    for user in status.users:
        if user.user in kept:
            labels = label_text(user=user.user)
            out.add(USER_GPUS, labels, user.gpus)
            out.add(USER_IDLE, labels, user.idle_gpus)
            out.add(USER_MEMORY, labels, mib(user.gpu_memory_used_mib))
    return kept


def _users(status: ClusterStatus) -> Iterable[str | None]:
    """Yield who is on the GPUs: those who hold the most first, display servers last."""
    for user in status.users:
        yield user.user
    for host in status.hosts:
        if host.state == "fresh":
            for gpu in host.gpus:
                yield from (holder.user for holder in gpu.holders)


def _add_host(out: Exposition, host: HostStatus) -> None:
    labels = label_text(host=host.name)
    for state in HOST_STATES:
        out.add(HOST_STATE, with_labels(labels, state=state), state == host.state)
    if host.reason is not None:
        out.add(HOST_REASON, with_labels(labels, reason=host.reason_kind), 1)
    out.add(HOST_AGE, labels, None if host.age_seconds is None else round(host.age_seconds, 3))
    out.add(ANSWERED, labels, host.answered_at)
    if host.state != "fresh":
        return
    versions = with_labels(
        labels,
        agent_version=host.agent_version,
        driver_version=host.driver_version,
        cuda_version=host.cuda_version,
    )
    out.add(VERSIONS, versions, 1)
    out.add(GPU_COUNT, labels, host.gpu_count)
    out.add(HOST_ERRORS, labels, len(host.errors))
    out.add(CPU, labels, share(host.cpu_percent))
    out.add(MEMORY, labels, mib(host.memory_total_mib))
    out.add(MEMORY_LEFT, labels, mib(host.memory_available_mib))


def _add_gpu(
    out: Exposition, host: HostStatus, gpu: GpuStatus, kept: frozenset[str | None]
) -> None:
    fresh = host.state == "fresh"
    labels = gpu_labels(host.name, gpu.index, gpu.uuid, gpu.name)
    add_state(out, STATE, labels, gpu.state)
    if fresh:
        add_since(out, labels, gpu.since, at_least=gpu.since_at_least, at_most=gpu.since_at_most)
        add_readings(out, labels, gpu)
    for part in gpu.mig:
        inside = mig_labels(host.name, gpu.index, gpu.name, part)
        add_state(out, MIG_STATE, inside, part.state)
        if fresh:
            add_mig_readings(out, inside, part)
            add_users(out, inside, holding(part), kept)
    if fresh and not gpu.mig:
        add_users(out, labels, gpu.holders, kept)


def targets(entries: Iterable[HostEntry]) -> list[dict[str, Any]]:
    """Return the agents as Prometheus' HTTP service discovery wants them, one group a host.

    Hosts without an agent (this machine, simulated ones) are not among them: the server's own
    /metrics has them.
    """
    return [_group(entry) for entry in entries if entry.source == "xmlrpc"]


def _group(entry: HostEntry) -> dict[str, Any]:
    labels = {
        "__scheme__": "https" if entry.tls else "http",
        "__meta_gpumon_host": entry.name,
        "__meta_gpumon_drained": "true" if entry.drained else "false",
    }
    for key, value in entry.labels.items():
        labels[f"__meta_gpumon_label_{_label_name(key)}"] = value
    return {"targets": [join_address(entry.host, entry.port)], "labels": labels}


def _label_name(key: str) -> str:
    """Return a key of the configuration as Prometheus takes it in the name of a label."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in key)
