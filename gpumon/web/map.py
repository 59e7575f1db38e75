"""The map: a small link for each host, with a square for each GPU. For clusters of many hosts.

A square is an element with one class for its state and, when busy, one for how full it is drawn;
style sheet and class give it border, fill and sign. Written without templates: thousands of squares
are made for each picture.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.cluster.status import HostStatus
from gpumon.units import natural_key
from gpumon.web.cells import BUSY_USE_UNKNOWN, cell
from gpumon.web.escape import escape
from gpumon.web.hosts import HostRow
from gpumon.web.links import segment
from gpumon.web.words import sentence

NO_MODEL = "GPUs not known"


def by_model(rows: Iterable[HostRow]) -> list[tuple[str, list[HostRow]]]:
    """Return the rows in groups of the same model, in natural order, unknown ones last."""
    groups: dict[str, list[HostRow]] = {}
    for row in rows:
        groups.setdefault(row.model if row.host.gpus else NO_MODEL, []).append(row)
    names = sorted(groups, key=lambda name: (name == NO_MODEL, natural_key(name)))
    return [(name, groups[name]) for name in names]


def map_link(host: HostStatus, root: str) -> str:
    """Return the markup of one host: its name, a sentence for those who don't see, its squares."""
    name = escape(host.name)
    address = f"{root}host/{segment(host.name)}"
    said = sentence(host.gpus) or host.reason or "GPUs not known"
    if host.state != "fresh":
        said = f"{host.state}: {said}"
    said = escape(said)
    squares = "".join(_square(gpu) for gpu in map(cell, host.gpus)) or '<i class="unknown"></i>'
    return (
        f'<a href="{address}" data-host="{name}" data-state="{host.state}" title="{said}">'
        f'<b>{name}</b><s aria-hidden="true">{squares}</s></a>'
    )


def _square(one: tuple[str, str, int]) -> str:
    state, mark, level = one
    if state != "busy":
        return f'<i class="{state}"></i>'
    # A use that is not known is no small one: such a square carries the sign.
    return (
        '<i class="busy held"></i>'
        if mark == BUSY_USE_UNKNOWN
        else f'<i class="busy u{level}"></i>'
    )
