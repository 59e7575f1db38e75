"""The page's plain twin: what curl gets. 100 columns, ASCII only, no colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from gpumon.cluster.status import ClusterStatus, ModelTotals
from gpumon.text import clean
from gpumon.units import UNKNOWN, cut, mib, pad
from gpumon.web import front as words
from gpumon.web.ages import short_since
from gpumon.web.cells import text_mark
from gpumon.web.front import Front, front
from gpumon.web.hosts import HostRow
from gpumon.web.waste import Waste
from gpumon.web.words import counted, numbers

WIDTH = 100
MOST_HOSTS = 200
"""Above this the list of hosts is left out: nobody reads it, and scripts have the JSON."""
MOST_USERS = 20
MOST_WASTE = 40

_GPUS_A_LINE = 8
_MARK = 4
_LEGEND = (
    "73 busy, with utilization   #  busy, utilization unknown   __ free   z  held, not used",
    "!! fault   ?  unknown   -- drained   3/7 MIG: free instances of all",
)


def render(status: ClusterStatus) -> str:
    """Return the cluster as text; every line ends in a line feed and fits into WIDTH columns."""
    view = front(status)
    blocks = [
        _head(status),
        _models(status, view),
        _hosts(view),
        _users(status, view.by_rule),
        _waste(view, status.time),
        [words.BY_RULE] if view.starred else [],
        wrapped(plain(words.totals(status), 4 * WIDTH)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def plain(text: str, limit: int = WIDTH) -> str:
    """Return `text` cut to `limit`, "?" for all that isn't printable ASCII."""
    return cut(clean(text, 4 * limit).encode("ascii", "replace").decode("ascii"), limit)


def _head(status: ClusterStatus) -> list[str]:
    counts = "  ".join(f"{number} {state}" for state, number in words.counts(status))
    size = words.size(status).replace(" on ", ", ")
    lines = [words.SIMULATED] if status.simulated else []
    lines.append(cut(f"{plain(status.title, 16)}  {counts}   {size}", WIDTH))
    lines.append(f"as of {words.as_of(status)}, {words.freshness(status)}")
    if status.query:
        lines += wrapped(plain(f"filter: {status.query}", 300))
    for remark in status.query_remarks:
        lines += wrapped(plain(remark, 300))
    return lines


def _models(status: ClusterStatus, view: Front) -> list[str]:
    if not view.models:
        if status.query and not status.hosts:
            return [words.NO_MATCH]
        return [] if view.fitting else [words.NO_HOSTS, *words.EXAMPLE_HOSTS]
    rows = [
        [
            plain(model.model),
            str(model.counts.free),
            str(model.counts.total),
            "  ".join(_blocks(model)),
        ]
        for model in view.models
    ]
    lines = table(["MODEL", ">FREE", ">TOTAL", "LARGEST BLOCKS"], rows, [28, 5, 5])
    lines += [view.nothing_free] if view.nothing_free else []
    return [*lines, *wrapped(words.MIG_COUNTS)] if view.mig else lines


def _blocks(model: ModelTotals) -> list[str]:
    blocks = [f"{plain(block.host)} x{block.free}" for block in model.blocks[:6]]
    unknown = model.counts.unknown
    return [*blocks, f"({unknown} unknown)"] if unknown else blocks


def _hosts(view: Front) -> list[str]:
    rows = view.hosts
    if view.fitting > MOST_HOSTS:
        return [
            f"{view.fitting} hosts are too many to list here: filter them (/?q=free), or see "
            "/status.json or /host/NAME."
        ]
    if not rows:
        return []
    name = _width((row.host.name for row in rows), 4, 20)
    model = _width((row.model for row in rows), 5, 18)
    marks = _MARK * min(_GPUS_A_LINE, max(1, *(len(row.host.gpus) for row in rows)))
    seen = _width((_seen(row) for row in rows), 4, 20)
    users = WIDTH - name - model - marks - 5 - seen - 3
    heading = "".join(f"{index:>{_MARK}}" for index in range(marks // _MARK))
    lines = [f"{pad('HOST', name)} {pad('MODEL', model)}{heading} FREE {pad('USERS', users)} SEEN"]
    for row in rows:
        first = f"{pad(plain(row.host.name), name)} {pad(plain(row.model), model)}"
        if row.instead is not None:
            instead = pad(plain(row.instead), marks + 5 + users)
            lines.append(f"{first} {instead} {_seen(row)}".rstrip())
            continue
        chunks = _mark_lines(row)
        last = f"{pad(chunks[0], marks)}{row.free:>5} {pad(_users_of(row), users)} {_seen(row)}"
        lines.append((first + last).rstrip())
        lines.extend(" " * (name + model + 1) + chunk for chunk in chunks[1:])
    return [*lines, *_LEGEND]


def _seen(row: HostRow) -> str:
    return f"{row.seen} {row.mark}".rstrip()


def _mark_lines(row: HostRow) -> list[str]:
    marks = [f"{text_mark(gpu):>{_MARK}}" for gpu in row.host.gpus]
    return [
        "".join(marks[start : start + _GPUS_A_LINE]) for start in range(0, len(marks), _GPUS_A_LINE)
    ]


def _users_of(row: HostRow) -> str:
    held = ", ".join(f"{user_words(one.user, one.by_rule)} {len(one.gpus)}" for one in row.held)
    return held if row.host.state == "fresh" or not held else f"last: {held}"


def _users(status: ClusterStatus, by_rule: set[str]) -> list[str]:
    rows = [
        [
            user_words(user.user, user.user in by_rule),
            str(user.gpus),
            str(user.idle_gpus),
            mib(user.gpu_memory_used_mib),
            UNKNOWN if user.processes is None else str(user.processes),
            short_since(status.time, user.since, at_most=user.since_at_most),
            " ".join(f"{plain(place.host)}:{numbers(place.gpus)}" for place in user.places),
        ]
        for user in status.users[:MOST_USERS]
    ]
    if not rows:
        return []
    headings = ["USER", ">GPUS", ">IDLE", ">MEMORY", ">PROCS", ">SINCE", "WHERE"]
    lines = table(headings, rows, [20, 5, 5, 7, 5, 8])
    more = len(status.users) - len(rows)
    return [*lines, f"and {counted(more, 'more user')}"] if more else lines


def _waste(view: Front, now: float) -> list[str]:
    rows = [
        [
            row.kind,
            _where(row),
            ",".join(user_words(user, user in row.by_rule) for user in row.users) or UNKNOWN,
            short_since(now, row.since, row.at_least),
            plain(row.what, 3 * WIDTH),
        ]
        for row in view.waste[:MOST_WASTE]
    ]
    if not rows:
        return [words.NO_WASTE] if view.fitting else []
    headings = ["STATE", "WHERE", "WHO", ">SINCE", "WHAT"]
    sums = ", ".join(f"{part.kind} {part.what}" for part in view.summary)
    lines = wrapped(f"wasted or broken: {sums}") if sums else []
    lines += table(headings, rows, [7, 28, 16, 7])
    more = len(view.waste) - len(rows)
    return [*lines, f"and {counted(more, 'more row')}"] if more else lines


def _where(row: Waste) -> str:
    if row.more_hosts:
        return f"{plain(row.host, 20)} +{row.more_hosts}"
    return plain(row.host or "this server") + (f":{numbers(row.gpus)}" if row.gpus else "")


def user_words(name: str | None, by_rule: bool) -> str:
    """Return a user's name, with its mark where it is one by a rule; "?" for unknown owners."""
    if name is None:
        return "?"
    return f"{plain(name, 19)}*" if by_rule else plain(name, 20)


def _width(texts: Iterable[str], least: int, most: int) -> int:
    return min(most, max([least, *(len(plain(text)) for text in texts)]))


def table(headings: Sequence[str], rows: list[list[str]], most: Sequence[int]) -> list[str]:
    """Return aligned lines. `most` limits all columns but the last, which takes the rest and goes
    on below itself where that is too little. ">" before a heading aligns to the right.
    """
    rights = [heading.startswith(">") for heading in headings]
    titles = [heading.lstrip(">") for heading in headings]
    widths = [
        min(limit, max(len(row[place]) for row in [titles, *rows]))
        for place, limit in enumerate(most)
    ]
    indent = sum(widths) + 2 * len(widths)
    lines = []
    for row in [titles, *rows]:
        cells = [
            pad(text, width, right=right)
            for text, width, right in zip(row[:-1], widths, rights[:-1], strict=True)
        ]
        rest = textwrap.wrap(
            row[-1], WIDTH - indent, max_lines=3, placeholder=" ~", break_on_hyphens=False
        ) or [""]
        lines.append("  ".join([*cells, rest[0]]).rstrip())
        lines.extend(" " * indent + more for more in rest[1:])
    return lines


def wrapped(text: str) -> list[str]:
    """Return `text` in lines of at most WIDTH."""
    return textwrap.wrap(text, WIDTH)
