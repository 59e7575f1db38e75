"""Filter words: "free 4x h100 @alice gpu-0*". One meaning on page, text, JSON and terminal.

A host is kept when one of its GPUs (or MIG instances) fits all words about GPUs, and the host fits
all words about hosts. Pure: a status goes in, one over the hosts that are kept comes out.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import structs

from gpumon.cluster.shares import holding, parts
from gpumon.cluster.status import ClusterStatus, GpuStatus, HostStatus, MigStatus
from gpumon.cluster.totals import cluster_totals, model_totals, shares_of, user_totals
from gpumon.states import GPU_STATES, HOST_STATES
from gpumon.text import clean

MOST_LETTERS = 200
"""Of all words together; what is longer is cut, and the answer says so."""
MOST_WORDS = 12

Part = GpuStatus | MigStatus
_PartRule = Callable[[HostStatus, GpuStatus, Part], bool]
_HostRule = Callable[[HostStatus], bool]

_TOGETHER = re.compile(r"([1-9][0-9]{0,2})x")
_SLICE = re.compile(r"^mig$|[0-9]g\.[0-9]")
_MEMORY = re.compile(r"(>=|<=)([0-9]{1,5}(?:\.[0-9]{1,2})?)g?b?")


class Query(NamedTuple):
    """What was asked for."""

    words: tuple[str, ...]
    """As typed, cleaned, each once."""
    remarks: tuple[str, ...]
    """What was left out of what was typed, each a sentence."""

    @property
    def text(self) -> str:
        """The words as they stand in an address or in the field of the form."""
        return " ".join(self.words)


EVERYTHING = Query((), ())


def parse(typed: str) -> Query:
    """Return the query in `typed`; nothing that anybody can type is an error."""
    remarks = []
    text = clean(typed, MOST_LETTERS)
    if len(typed) > MOST_LETTERS:
        text = text.rpartition(" ")[0]  # the last word is cut in two
        remarks.append(f"The filter is longer than {MOST_LETTERS} letters: its end was left out.")
    words = list(dict.fromkeys(text.split()))
    if len(words) > MOST_WORDS:
        remarks.append(f"Only the first {MOST_WORDS} words of the filter count.")
    return Query(tuple(words[:MOST_WORDS]), tuple(remarks))


def select(status: ClusterStatus, query: Query) -> ClusterStatus:
    """Return `status` over the hosts that fit `query`, its sums over those hosts as well.

    `query` and `query_remarks` of the answer say what it stands for. A word that nothing in the
    cluster is called by is left out, and said so. Without words it is the same object.
    """
    remarks = list(query.remarks)
    rules = _Rules()
    for word in query.words:
        if not rules.add(word, status.hosts):
            remarks.append(f"Nothing here is called {word!r}: that word was left out.")
    if not query.words:
        return structs.replace(status, query_remarks=remarks) if remarks else status
    hosts = [host for host in status.hosts if rules.fit(host)] if rules.any else status.hosts
    shares = shares_of(hosts)
    return structs.replace(
        status,
        totals=cluster_totals(hosts, shares),
        models=model_totals(shares),
        users=user_totals(shares),
        hosts=hosts,
        query=query.text,
        query_remarks=remarks,
    )


class _Rules:
    """The rules that the words stand for."""

    def __init__(self) -> None:
        self._parts: list[_PartRule] = []
        self._hosts: list[_HostRule] = []
        self._together = 0
        self._slices = False
        """Whether MIG instances are asked for; else "4x" counts cards, and no slice of one."""

    @property
    def any(self) -> bool:
        return bool(self._parts or self._hosts or self._together)

    def add(self, word: str, hosts: Sequence[HostStatus]) -> bool:
        """Take in a word; return False where it means nothing here."""
        low = word.casefold()
        if found := _TOGETHER.fullmatch(low):
            self._together = max(self._together, int(found[1]))
        elif found := _MEMORY.fullmatch(low):
            self._parts.append(_memory(found[1], float(found[2]) * 1024))
        elif low in GPU_STATES:
            self._parts.append(lambda host, gpu, part: part.state == low)
        elif low in HOST_STATES:
            self._hosts.append(lambda host: host.state == low)
        elif low == "wasted":
            self._parts.append(lambda host, gpu, part: _is_wasted(part))
        elif low == "broken":
            self._parts.append(lambda host, gpu, part: part.state == "fault")
        elif word.startswith("@") and len(word) > 1:
            self._parts.append(_held_by(word[1:]))
        elif ":" in low and (label := _label(low, hosts)) is not None:
            self._hosts.append(label)
        else:
            self._slices = self._slices or _SLICE.search(low) is not None
            rule = _named(word)
            if not any(rule(*place) for host in hosts for place in _places(host)):
                return False
            self._parts.append(rule)
        return True

    def fit(self, host: HostStatus) -> bool:
        if not all(rule(host) for rule in self._hosts):
            return False
        if not self._parts and not self._together:
            return True
        fitting = [
            part
            for _, gpu, part in _places(host)
            if part is not None and all(rule(host, gpu, part) for rule in self._parts)
        ]
        if self._together:
            counted = MigStatus if self._slices else GpuStatus
            free = [p for p in fitting if p.state == "free" and isinstance(p, counted)]
            return len(free) >= self._together
        # A host that shows no GPU is still found by its name.
        return bool(fitting) or (
            not host.gpus and all(rule(host, NO_GPU, NO_GPU) for rule in self._parts)
        )


NO_GPU = GpuStatus(
    index=-1, uuid=None, name=None, model="", state="unknown", reason=None, since=None,
    since_at_least=False, utilization_percent=None, memory_used_mib=None, memory_total_mib=None,
    unified_memory=False, temperature_celsius=None, power_draw_watts=None,
    enforced_power_limit_watts=None, mig_mode=None, mig=[], holders=[],
)  # fmt: skip
"""Stands for what a host without a known GPU may have: nothing is known of it."""


def _places(host: HostStatus) -> list[tuple[HostStatus, GpuStatus, Part]]:
    """Return everything on the host that can be held one by one; at least `NO_GPU`."""
    found: list[tuple[HostStatus, GpuStatus, Part]] = [
        (host, gpu, part) for gpu in host.gpus for part in parts(gpu)
    ]
    return found or [(host, NO_GPU, NO_GPU)]


def _memory(sign: str, mib: float) -> _PartRule:
    # A card of "80 GB" tells a little less or more than 80 GiB.
    def rule(host: HostStatus, gpu: GpuStatus, part: Part) -> bool:
        total = part.memory_total_mib
        if total is None:
            return False
        return total >= 0.97 * mib if sign == ">=" else total <= 1.03 * mib

    return rule


def _held_by(user: str) -> _PartRule:
    return lambda host, gpu, part: any(holder.user == user for holder in holding(part))


def _is_wasted(part: Part) -> bool:
    """Return whether a part is held and not used, or held by nobody who can be seen."""
    return part.state == "idle" or (part.state == "busy" and not part.holders)


def _label(low: str, hosts: Sequence[HostStatus]) -> _HostRule | None:
    name, _, value = low.partition(":")

    def rule(host: HostStatus) -> bool:
        return any(
            name == key.casefold() and fnmatch.fnmatchcase(text.casefold(), value)
            for key, text in host.labels.items()
        )

    known = any(name == key.casefold() for host in hosts for key in host.labels)
    return rule if known else None


def _named(word: str) -> _PartRule:
    """Return the rule of a bare word: a host's name or label, a model, or a user."""
    low = word.casefold()
    # A pattern names a whole host; other words may stand anywhere in a name.
    is_pattern = any(sign in low for sign in "*?[")

    def rule(host: HostStatus, gpu: GpuStatus, part: Part) -> bool:
        if is_pattern:
            return fnmatch.fnmatchcase(host.name.casefold(), low)
        model = f"{gpu.model} {gpu.name or ''}"
        if isinstance(part, MigStatus):
            model += f" MIG {part.name or ''}"
        return (
            low in host.name.casefold()
            or low in model.casefold()
            or any(low == text.casefold() for text in host.labels.values())
            or any(holder.user == word for holder in holding(part))
        )

    return rule
