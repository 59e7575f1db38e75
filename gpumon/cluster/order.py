"""Orders of the hosts, by the name of a column; "-" before it turns the order around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from gpumon.cluster.shares import holding, parts
from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.states import HOST_STATES
from gpumon.units import natural_key


def _free(host: HostStatus) -> int | None:
    if host.state != "fresh" or (host.gpu_count is None and not host.gpus):
        return None
    return sum(part.state == "free" for gpu in host.gpus for part in parts(gpu))


def _used_memory(host: HostStatus) -> float | None:
    total, left = host.memory_total_mib, host.memory_available_mib
    if host.state != "fresh" or total is None or left is None or total <= 0:
        return None
    return (total - left) / total


def _users(host: HostStatus) -> int:
    return len(
        {holder.user for gpu in host.gpus for part in parts(gpu) for holder in holding(part)}
    )


_KEYS: dict[str, Callable[[HostStatus], Any]] = {
    "host": lambda host: natural_key(host.name),
    "model": lambda host: natural_key(host.gpus[0].model) if host.gpus else None,
    "free": _free,
    "users": _users,
    "cpu": lambda host: host.cpu_percent if host.state == "fresh" else None,
    "ram": _used_memory,
    "seen": lambda host: host.age_seconds,
    "state": lambda host: HOST_STATES.index(host.state),
}

COLUMNS = tuple(_KEYS)
LARGEST_FIRST = ("free", "users", "cpu", "ram", "seen", "state")
"""Columns of which people want the largest first."""


def is_order(order: str) -> bool:
    """Return whether `order` names one: "free" or "-free"."""
    return order.removeprefix("-") in _KEYS


def ordered(status: ClusterStatus, order: str) -> ClusterStatus:
    """Return `status` with its hosts in `order`; "" keeps that of the configuration.

    Hosts of which the value is not known stand last either way. Equal ones keep their order.
    """
    if not is_order(order):
        return status
    key = _KEYS[order.removeprefix("-")]
    known = [(key(host), host) for host in status.hosts]
    first = sorted(
        (pair for pair in known if pair[0] is not None),
        key=lambda pair: pair[0],
        reverse=order.startswith("-"),
    )
    last = [host for value, host in known if value is None]
    return structs.replace(status, hosts=[*(host for _, host in first), *last])
