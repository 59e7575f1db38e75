"""What a host of which number is: its GPUs, who works there, what is broken about it.

The first seven show every case that matters; after them the mixture is that of a large cluster,
most of it busy and healthy.
"""

from __future__ import annotations

import random

import msgspec

from gpumon.simulate.hardware import (
    A100_HOST,
    DESKTOP,
    H100_HOST,
    L40S_HOST,
    UNIFIED,
    Machine,
)
from gpumon.simulate.lanes import (
    BUSY,
    GHOST,
    HOARDED,
    MIXED,
    QUIET,
    SERVICE,
    Lane,
    Place,
    Style,
    generator,
)

PEOPLE_AT_LEAST = 14

Share = tuple[Style, list[Place], float]
"""One lane to be: how it is used, where, and which part of the memory there is its own."""

FIRST_SEVEN = ("training", "neglected", "mig", "desktop", "unified", "no driver", "silent")
LATER = {
    "training": 35.0,
    "mixed": 18.0,
    "serving": 14.0,
    "quiet": 8.0,
    "neglected": 7.0,
    "desktop": 7.0,
    "mig": 5.0,
    "unified": 3.0,
    "silent": 1.3,
    "stuck": 1.0,
    "no driver": 0.7,
}
"""Kinds of the hosts after the first seven, in percent."""

GPU_DEFECTS = {"": 995.0, "lost": 2.0, "ecc": 2.0, "hot": 1.0}
"""What is broken about a GPU, out of a thousand; the host numbers below have theirs for sure."""
CERTAIN_DEFECTS = {1: {4: "lost"}, 2: {5: "ecc"}}

_MACHINES = {
    "serving": L40S_HOST,
    "quiet": A100_HOST,
    "mig": A100_HOST,
    "desktop": DESKTOP,
    "unified": UNIFIED,
}
"""For kinds that are not on H100_HOST."""

_SPLITS = ([4, 2, 1, 1], [8], [4, 4], [2, 2, 2, 2], [4, 1, 1, 1, 1], [1] * 8)
_MIG_PROFILES = (["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], ["1g.10gb"] * 7)


class HostPlan(msgspec.Struct, kw_only=True):
    """All that stays the same about an invented host."""

    kind: str
    machine: Machine
    mig: dict[int, list[str]] = {}
    """GPU index -> profiles of its MIG instances."""
    defects: dict[int, str] = {}
    """GPU index -> a key of GPU_DEFECTS."""
    lanes: list[Lane] = []


def plan(number: int, seed: int) -> HostPlan:
    """Return what the host with this number (from 0) is."""
    rng = generator(f"{seed}/{number}")
    if number < len(FIRST_SEVEN):
        kind = FIRST_SEVEN[number]
    else:
        kind = rng.choices(list(LATER), list(LATER.values()))[0]
    host = HostPlan(kind=kind, machine=_machine(kind, rng))
    if kind == "mig":
        host.mig = dict(enumerate(_MIG_PROFILES))
    if number in CERTAIN_DEFECTS:
        host.defects = CERTAIN_DEFECTS[number]
    elif number >= len(FIRST_SEVEN):
        names, weights = list(GPU_DEFECTS), list(GPU_DEFECTS.values())
        drawn = rng.choices(names, weights, k=host.machine.gpu_count)
        host.defects = {index: defect for index, defect in enumerate(drawn) if defect}
    host.lanes = [
        Lane(
            f"{seed}/{number}/{position}",
            style,
            places,
            people=PEOPLE_AT_LEAST + number // 2,
            share=share,
        )
        for position, (style, places, share) in enumerate(_work(host, number, rng))
    ]
    return host


def _machine(kind: str, rng: random.Random) -> Machine:
    if kind == "mixed":
        return rng.choice((H100_HOST, A100_HOST))
    return _MACHINES.get(kind, H100_HOST)


def _work(host: HostPlan, number: int, rng: random.Random) -> list[Share]:
    """Return what goes on at a host, lane by lane."""
    if host.kind == "desktop":
        return [(MIXED, [(0, None)], 0.85), (MIXED, [(1, None)], 1.0)]
    if host.kind == "unified":
        return [(MIXED, [(0, None)], 0.6)]
    if host.kind == "serving":
        return [
            (SERVICE, [(index, None)], share)
            for index in range(host.machine.gpu_count)
            for share in rng.choice(([1.0], [0.5, 0.5]))
        ]
    if host.kind == "neglected":
        styles = [HOARDED, HOARDED, HOARDED, BUSY, BUSY, GHOST, QUIET, QUIET]
        if number >= len(FIRST_SEVEN):
            styles = rng.choices([HOARDED, BUSY, QUIET, GHOST], [4.0, 2.0, 2.0, 0.3], k=8)
        return [(style, [(index, None)], 1.0) for index, style in enumerate(styles)]
    if host.kind == "mig":
        whole = [index for index in range(host.machine.gpu_count) if index not in host.mig]
        lanes: list[Share] = [(QUIET, [(index, None)], 1.0) for index in whole]
        for index, profiles in host.mig.items():
            lanes += [(MIXED, [(index, instance)], 1.0) for instance in range(len(profiles))]
        return lanes
    style = {"mixed": MIXED, "quiet": QUIET}.get(host.kind, BUSY)
    return _split(style, _SPLITS[0] if number == 0 else rng.choice(_SPLITS))


def _split(style: Style, sizes: list[int]) -> list[Share]:
    lanes: list[Share] = []
    index = 0
    for size in sizes:
        places: list[Place] = [(index + offset, None) for offset in range(size)]
        lanes.append((style, places, 1.0))
        index += size
    if sizes[-1] == 1:
        # Two people share the last GPU.
        style, places, _ = lanes.pop()
        lanes += [(style, places, 0.5), (style, places, 0.5)]
    return lanes
