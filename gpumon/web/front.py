"""What the front page and its plain text say, before either is laid out."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.cluster.order import COLUMNS, LARGEST_FIRST
from gpumon.cluster.status import ClusterStatus, ModelTotals
from gpumon.cluster.totals import mute_hosts
from gpumon.states import GPU_STATES, GpuState
from gpumon.units import UNKNOWN, clock, duration
from gpumon.web.address import Address
from gpumon.web.holding import owners_by_rule
from gpumon.web.hosts import HostRow, host_row
from gpumon.web.map import by_model
from gpumon.web.waste import Sum, Waste, longest_idle, summary, wasted
from gpumon.web.words import counted

SIMULATED = "SIMULATED: these hosts and numbers are invented"

NO_HOSTS = "No hosts are configured. Write them into config.yml, then reload the server:"
EXAMPLE_HOSTS = ("hosts:", "  - gpu-host-1", "  - gpu-host-2")
NO_MATCH = "No host fits the filter."
NO_ANSWER = "No host has answered yet."
NO_GPUS = "No GPU is known: the hosts say why."
NO_WASTE = "Nothing is known to be wasted or broken."
NO_HISTORY = (
    "No history is kept yet, so nothing can be said about last week. What you see is this moment."
)
NO_USERS = "Nobody holds a GPU, as far as the hosts answer."
BY_RULE = (
    "* owner by rule, not by the user that the process runs as: the page of the host says how."
)
NOTHING_FREE = "No GPU is free right now."
NOT_KNOWN_FREE = "No GPU is known to be free right now."
MIG_COUNTS = (
    "A GPU in MIG mode counts once in the totals. In this table its instances count, each under "
    "its profile."
)


MOST_ROWS = 200
"""Above so many hosts the map is shown unless rows are asked for; rows come so many a page."""
MOST_DETAILED_HOSTS = 50
"""Up to so many hosts the front page holds every GPU's readings; above, the hosts' pages do."""
MOST_OPEN_GPUS = 16
"""Up to so many GPUs those readings stand open."""


_PLAIN = Address()


class Column(NamedTuple):
    """How the hosts are ordered by one column, and what a click on its heading asks for."""

    aria: str
    """"ascending", "descending", or "" where the order is another's."""
    next: str


class Front(NamedTuple):
    """What stands between head and foot, in the order in which people ask."""

    models: list[ModelTotals]
    no_models: str
    """Why `models` is empty, as a sentence."""
    mig: bool
    """Whether MIG instances are among `models`."""
    nothing_free: str
    """A sentence when no GPU is free, or none is known to be; else ""."""
    ask: list[Waste]
    """Whom to ask when nothing is free: the GPUs that are idle longest."""
    hosts: list[HostRow]
    """The rows of this page: all, or `MOST_ROWS` of them. None of the map's."""
    map: list[tuple[str, list[HostRow]]]
    """The map's hosts by model; empty where rows are shown."""
    fitting: int
    """How many hosts the address asks for."""
    page: int
    pages: int
    details: str
    """Whether rows hold every GPU's readings: "", "closed" or "open"."""
    columns: dict[str, Column]
    remarks: list[str]
    waste: list[Waste]
    summary: list[Sum]
    """`waste` in one line."""
    by_rule: set[str]
    """Users who hold something on fresh hosts as owners by a rule."""
    starred: bool
    """Whether anybody is marked as owner by a rule, so that the mark needs its words."""


def front(status: ClusterStatus, address: Address = _PLAIN) -> Front:
    """Return everything that the front page says about `status`.

    `status` is over the hosts that `address` asks for, in its order.
    """
    waste = wasted(status)
    fitting = len(status.hosts)
    as_map = (address.view or ("map" if fitting > MOST_ROWS else "rows")) == "map"
    pages = 1 if as_map else max(1, -(-fitting // MOST_ROWS))
    page = min(address.page, pages)
    start = 0 if as_map else (page - 1) * MOST_ROWS
    shown = status.hosts if as_map else status.hosts[start : start + MOST_ROWS]
    hosts = [host_row(host) for host in shown]
    nothing_free = _nothing_free(status)
    return Front(
        models=status.models,
        no_models=NO_GPUS if any(host.state != "never" for host in status.hosts) else NO_ANSWER,
        mig=any(gpu.mig for host in status.hosts for gpu in host.gpus),
        nothing_free=nothing_free,
        ask=longest_idle(waste, 5) if nothing_free else [],
        hosts=[] if as_map else hosts,
        map=by_model(hosts) if as_map else [],
        fitting=fitting,
        page=page,
        pages=pages,
        details=_details(status),
        columns={name: _column(name, address.order) for name in COLUMNS},
        remarks=[f"There is no page {address.page}: this is the last."]
        if address.page > pages
        else [],
        waste=waste,
        summary=summary(waste),
        by_rule=owners_by_rule(
            gpu for host in status.hosts if host.state == "fresh" for gpu in host.gpus
        ),
        starred=any(held.by_rule for row in hosts for held in row.held),
    )


def _details(status: ClusterStatus) -> str:
    if len(status.hosts) > MOST_DETAILED_HOSTS:
        return ""
    gpus = status.totals.gpus
    return "open" if gpus is None or gpus.total <= MOST_OPEN_GPUS else "closed"


def _column(name: str, order: str) -> Column:
    """A heading asks for its order, then for the reverse, then for the configuration's."""
    first, second = (f"-{name}", name) if name in LARGEST_FIRST else (name, f"-{name}")
    aria = {name: "ascending", f"-{name}": "descending"}.get(order, "")
    return Column(aria, {first: second, second: ""}.get(order, first))


def _nothing_free(status: ClusterStatus) -> str:
    if not status.models or any(model.counts.free for model in status.models):
        return ""
    unknown = any(model.counts.unknown for model in status.models) or mute_hosts(status.hosts)
    return NOT_KNOWN_FREE if unknown else NOTHING_FREE


def counts(status: ClusterStatus) -> list[tuple[GpuState, str]]:
    """Return GPUs by state, "-" as long as nobody told of any; drained ones only where there are
    any.
    """
    numbers = status.totals.gpus
    if numbers is None:
        return [(state, UNKNOWN) for state in GPU_STATES if state != "drained"]
    found: list[tuple[GpuState, int]] = [(state, getattr(numbers, state)) for state in GPU_STATES]
    return [(state, str(number)) for state, number in found if number or state != "drained"]


def headline(status: ClusterStatus) -> str:
    """Return what a browser's tab says: "54 free"."""
    return f"{dict(counts(status))['free']} free"


def size(status: ClusterStatus) -> str:
    """Return "504 GPUs on 63 hosts", "496 GPUs on 62 of 63 hosts" where one tells of none."""
    totals, mute = status.totals, mute_hosts(status.hosts)
    hosts = counted(totals.hosts, "host")
    if totals.gpus is None:
        return f"{UNKNOWN} GPUs on {hosts}"
    where = f"{totals.hosts - mute} of {hosts}" if mute else hosts
    return f"{counted(totals.gpus.total, 'GPU')} on {where}"


def as_of(status: ClusterStatus) -> str:
    """Return the time of day of `status`, to the second."""
    return clock(status.time).split()[-1]


def readings(status: ClusterStatus) -> str:
    """Return how old the readings are that count: "readings up to 8s old"."""
    ages = [
        host.age_seconds
        for host in status.hosts
        if host.state == "fresh" and host.age_seconds is not None
    ]
    return f"readings up to {duration(max(ages))} old" if ages else "no reading"


def freshness(status: ClusterStatus) -> str:
    """Return how old the readings are, and how often hosts are asked."""
    return f"{readings(status)}, hosts are asked every {status.poll_interval_seconds:g} s"


def totals(status: ClusterStatus) -> str:
    """Return the whole cluster in one line."""
    numbers = status.totals
    states = ", ".join(f"{number} {state}" for state, number in counts(status))
    silent = [
        f"{number} {word}"
        for number, word in (
            (numbers.hosts_stale, "stale"),
            (numbers.hosts_down, "down"),
            (numbers.hosts_never, "not heard of yet"),
        )
        if number
    ]
    line = f"{size(status)}: {states}. {counted(numbers.hosts_fresh, 'host')} fresh"
    line += "".join(f", {part}" for part in silent) + "."
    if numbers.hosts_never:
        line += " How many GPUs a host has that never answered is not known: none are counted."
    return line
