"""Trouble of a host's GPUs, that of the last day too, and hints: see docs/health.md."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model import Gpu, HealthLevel
from gpumon.units import clock


class Trouble(NamedTuple):
    """One row: what happened to one GPU."""

    gpu: int
    level: HealthLevel
    text: str
    times: int
    first: str
    last: str
    over: str
    """"goes on", or when it ended."""
    advice: str
    source: str


class Hint(NamedTuple):
    """What could be set up better, and on which GPUs."""

    text: str
    gpus: list[int]


def troubles(gpus: list[Gpu], now: float) -> list[Trouble]:
    """Return the health of all GPUs in their order; times are of the host's clock."""
    return [
        Trouble(
            gpu=gpu.index,
            level=event.level,
            text=event.text,
            times=event.count,
            first=clock(event.first_at, now),
            last=clock(event.last_at, now),
            over="goes on" if event.ended_at is None else f"ended {clock(event.ended_at, now)}",
            advice=event.advice or "",
            source=event.source,
        )
        for gpu in gpus
        for event in gpu.health
    ]


def hints(gpus: list[Gpu]) -> list[Hint]:
    """Return the hints; GPUs with the same hint share a line."""
    found: dict[str, list[int]] = {}
    for gpu in gpus:
        for text in dict.fromkeys(gpu.hints):
            found.setdefault(text, []).append(gpu.index)
    return [Hint(text, indices) for text, indices in found.items()]
