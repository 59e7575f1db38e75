"""The samples of a GPU that agent and server give under the same names, and their labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gpumon.metrics.exposition import Exposition, Metric, label_text, mib, share, with_labels
from gpumon.states import GPU_STATES, GpuState
from gpumon.summary import Holder

STATE = Metric("gpumon_gpu_state", "Whether the GPU is in this state: 1 in one of them, else 0.")
STATE_SINCE = Metric(
    "gpumon_gpu_state_since_timestamp_seconds",
    "When the GPU's state began; epoch seconds. See gpumon_gpu_state_since_exact.",
)
STATE_SINCE_EXACT = Metric(
    "gpumon_gpu_state_since_exact",
    "Whether somebody saw the GPU's state begin: 0 where it may have been earlier, or later.",
)
UTILIZATION = Metric("gpumon_gpu_utilization_ratio", "Share of time in which a kernel ran, 0 to 1.")
MEMORY_TOTAL = Metric("gpumon_gpu_memory_total_bytes", "Memory of the GPU.")
MEMORY_USED = Metric("gpumon_gpu_memory_used_bytes", "Memory in use on the GPU.")
TEMPERATURE = Metric("gpumon_gpu_temperature_celsius", "Temperature of the GPU.")
POWER_DRAW = Metric("gpumon_gpu_power_draw_watts", "Power that the GPU draws.")
POWER_LIMIT = Metric("gpumon_gpu_power_limit_watts", "Power limit in force.")
MIG_MODE = Metric("gpumon_gpu_mig_mode", "Whether MIG is on.")

USER_MEMORY = Metric(
    "gpumon_gpu_user_memory_used_bytes",
    "GPU memory of one user's processes; without the label user: nobody knows whose.",
)
USER_PROCESSES = Metric(
    "gpumon_gpu_user_processes",
    "Processes of one user on the GPU; without the label user: nobody knows whose.",
)
USERS_LEFT_OUT = Metric(
    "gpumon_users_left_out", "Users without samples of their own, since there are too many."
)

MIG_STATE = Metric(
    "gpumon_mig_state", "Whether the MIG instance is in this state: 1 in one of them, else 0."
)
MIG_MEMORY_TOTAL = Metric("gpumon_mig_memory_total_bytes", "Memory of the MIG instance.")
MIG_MEMORY_USED = Metric("gpumon_mig_memory_used_bytes", "Memory in use on the MIG instance.")

BUILD = Metric("gpumon_build_info", "Version of gpumon.")
CERTIFICATE = Metric(
    "gpumon_certificate_expires_timestamp_seconds", "When this certificate ends; epoch seconds."
)


class Readings(Protocol):
    """What a summary and a status of a GPU have in common."""

    @property
    def utilization_percent(self) -> int | None: ...
    @property
    def memory_total_mib(self) -> int | None: ...
    @property
    def memory_used_mib(self) -> int | None: ...
    @property
    def temperature_celsius(self) -> int | None: ...
    @property
    def power_draw_watts(self) -> float | None: ...
    @property
    def enforced_power_limit_watts(self) -> float | None: ...
    @property
    def mig_mode(self) -> bool | None: ...


class MigReadings(Protocol):
    """What a summary and a status of a MIG instance have in common."""

    @property
    def index(self) -> int: ...
    @property
    def uuid(self) -> str | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def memory_total_mib(self) -> int | None: ...
    @property
    def memory_used_mib(self) -> int | None: ...


def gpu_labels(host: str, index: int, uuid: str | None, name: str | None) -> str:
    """Return the labels of a GPU: all that tells it apart, and its model to sum by."""
    return label_text(host=host, gpu=index, uuid=uuid, model=name)


def mig_labels(host: str, gpu_index: int, model: str | None, part: MigReadings) -> str:
    """Return the labels of a MIG instance; `uuid` is its own."""
    return label_text(
        host=host,
        gpu=gpu_index,
        instance=part.index,
        uuid=part.uuid,
        model=model,
        profile=part.name,
    )


def add_state(out: Exposition, metric: Metric, labels: str, state: GpuState) -> None:
    """Add one sample a state, so that their means over time are shares of time."""
    for known in GPU_STATES:
        out.add(metric, with_labels(labels, state=known), known == state)


def add_since(
    out: Exposition, labels: str, since: float | None, *, at_least: bool, at_most: bool
) -> None:
    """Add when a state began, where that is known, and whether it is a bound. Epoch seconds."""
    if since is not None:
        out.add(STATE_SINCE, labels, since)
        out.add(STATE_SINCE_EXACT, labels, not (at_least or at_most))


def add_readings(out: Exposition, labels: str, gpu: Readings) -> None:
    """Add what is measured. Only of a GPU whose reading is of now."""
    out.add(UTILIZATION, labels, share(gpu.utilization_percent))
    out.add(MEMORY_TOTAL, labels, mib(gpu.memory_total_mib))
    out.add(MEMORY_USED, labels, mib(gpu.memory_used_mib))
    out.add(TEMPERATURE, labels, gpu.temperature_celsius)
    out.add(POWER_DRAW, labels, gpu.power_draw_watts)
    out.add(POWER_LIMIT, labels, gpu.enforced_power_limit_watts)
    out.add(MIG_MODE, labels, gpu.mig_mode)


def add_mig_readings(out: Exposition, labels: str, part: MigReadings) -> None:
    """Add what is measured of a MIG instance."""
    out.add(MIG_MEMORY_TOTAL, labels, mib(part.memory_total_mib))
    out.add(MIG_MEMORY_USED, labels, mib(part.memory_used_mib))


def kept_users(users: Iterable[str | None], most: int) -> tuple[frozenset[str | None], int]:
    """Return the first `most` users, and how many more there are. Unknown owners are always in."""
    named = [user for user in dict.fromkeys(users) if user is not None]
    return frozenset([None, *named[:most]]), max(0, len(named) - most)


def add_users(
    out: Exposition, labels: str, holders: Iterable[Holder], kept: frozenset[str | None]
) -> None:
    """Add what each of the kept users has on the GPU."""
    for holder in holders:
        if holder.user in kept:
            whose = with_labels(labels, user=holder.user)
            out.add(USER_MEMORY, whose, mib(holder.gpu_memory_used_mib))
            out.add(USER_PROCESSES, whose, len(holder.pids))
