"""Hosts that can't be reached: their agents push, and nobody asks them.

Each answer to a push holds a ticket that the next push has to show, once. So a push that was
recorded and sent again is worth nothing, and no clock of another machine is needed to see it: the
sender tells how long it held the ticket, the server knows how long ago it gave it away, and the
difference is how long answer and push were on their way.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import math
import secrets
import threading

import msgspec

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.record import REFUSAL_SECONDS, Record
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.trust import TooNew, foreign_summary
from gpumon.config import HostEntry
from gpumon.config.faults import quote
from gpumon.config.kinds import MACHINE, MachineName
from gpumon.model import SCHEMA, HostSnapshot
from gpumon.text import clean
from gpumon.units import duration

log = logging.getLogger(__name__)

MOST_NEWCOMERS = 1000
"""So many hosts may push that stand in no configuration."""
LONGEST_WAY_SECONDS = 30.0
"""A push that was longer on its way is not taken: its sender has long sent another one."""
LONGEST_REVISION = 200
WATCH_SECONDS = 1.0
QUIET_SECONDS = 60.0
"""Of one host's pushes that are not taken, the log tells once in this time."""

TAKEN = "taken"
AGAIN = "again"
"""The ticket is not the one that is due: push again with that of this answer."""
SEND_ALL = "send all"
"""The reading of this revision is not known here: push it whole."""


class Refused(Exception):
    """A push that is not taken. `str()` is a sentence for its sender and for the log."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        """A short word, one of SourceError.KINDS."""


class _Sender(msgspec.Struct):
    """What is known of one host's agent."""

    ticket: str
    issued: float
    """When the ticket was made, monotonic."""
    revision: str | None = None
    reading: Reading | None = None
    warned: float | None = None
    """When the log was told last of a push that was not taken, monotonic."""


class _News(msgspec.Struct):
    """What is pushed in place of a reading that is known already."""

    sample_age_seconds: float | None = None
    sampler_error: str | None = None


class PushInbox:
    """Takes in what is pushed, from any thread. Who may push was looked at before."""

    def __init__(self, fleet: Fleet, *, accept_new: bool) -> None:
        self._fleet = fleet
        self.accept_new = accept_new
        self._lock = threading.Lock()
        self._senders: dict[str, _Sender] = {}
        self._life = secrets.token_hex(4)

    def host_of(self, machine: str) -> str:
        """Return the host that `machine` pushes for, a new one where that is allowed.

        Raises Refused.
        """
        host = self._fleet.pushed(machine)
        if host is not None:
            return host
        if not MACHINE.match(machine):
            raise Refused("failed", f"expected {MachineName.expected}, found {quote(machine)}")
        if not self.accept_new:
            raise Refused(
                "failed",
                f"{machine} is not expected here: write push://{machine.lower()} into hosts of the "
                "server's config.yml, or web: {push_accept_new: true}",
            )
        with self._lock:
            return self._new_host(machine)

    def _new_host(self, machine: str) -> str:
        name = machine.lower()
        known = self._fleet.pushed(name)
        if known is not None:
            return known  # two pushes of it came at once
        if any(record.entry.name.lower() == name for record in self._fleet.records()):
            raise Refused("failed", f"{machine} is the name of a host that this server asks itself")
        if self._fleet.newcomers() >= MOST_NEWCOMERS:
            raise Refused("failed", f"{MOST_NEWCOMERS} hosts that stand in no hosts push already")
        log.info("%s: pushes and stands in no hosts: taken in", machine)
        self._fleet.add(HostEntry(name=name, source="pushed", address=f"push://{name}", host=name))
        return name

    def push(
        self, host: str, ticket: str, held_seconds: float, revision: str, summary: str, packed: str
    ) -> tuple[str, str]:
        """Take in a whole reading of `host`. Return TAKEN or AGAIN and the next ticket.

        `held_seconds`: how long the sender had the ticket; `summary` and `packed` are those of
        poll(). Raises Refused.
        """
        sender, way, next_ticket = self._checked(host, ticket, held_seconds)
        if way is None:
            return AGAIN, next_ticket
        try:
            reading = Reading(
                summary=foreign_summary(summary.encode()),
                packed=base64.b64decode(packed, validate=True),
            )
        except TooNew as error:
            words = f"version too old: it pushes schema {error.schema}, this server reads {SCHEMA}"
            raise self._bad(host, "version too old", words) from error
        except binascii.Error as error:
            words = "bad answer: it pushed a detail that is not base64"
            raise self._bad(host, "bad answer", words) from error
        except (ValueError, RecursionError) as error:
            words = f"bad answer: it pushed a summary that can't be read ({error})"
            raise self._bad(host, "bad answer", words) from error
        with self._lock:
            sender.reading = reading
            sender.revision = revision if len(revision) <= LONGEST_REVISION else None
        self._arrived(host, reading, way)
        return TAKEN, next_ticket

    def push_known(
        self, host: str, ticket: str, held_seconds: float, revision: str, news: str
    ) -> tuple[str, str]:
        """Take in that the reading of `revision` is still the newest.

        Returns TAKEN, AGAIN or SEND_ALL and the next ticket. Raises Refused.
        """
        sender, way, next_ticket = self._checked(host, ticket, held_seconds)
        if way is None:
            return AGAIN, next_ticket
        try:
            told = msgspec.json.decode(news.encode(), type=_News)
        except (ValueError, RecursionError) as error:
            raise self._bad(host, "bad answer", "bad answer: it pushed no news") from error
        with self._lock:
            known = sender.reading if revision == sender.revision else None
        if known is None:
            return SEND_ALL, next_ticket
        words = None if told.sampler_error is None else clean(told.sampler_error, 1024)
        self._arrived(host, known.aged(told.sample_age_seconds, words), way)
        return TAKEN, next_ticket

    def take(self, host: str, snapshot: HostSnapshot) -> None:
        """Take in a whole reading that came without a ticket, as new as its arrival.

        For senders that know of none: a reading that was recorded and sent again is not seen.
        """
        self._fleet.answered(host, Reading.of(snapshot), asked=self._fleet.now().monotonic)

    def refused(self, machine: str, kind: str, sentence: str) -> None:
        """Show on the row of `machine`, where it has one, that a push of it was not taken."""
        host = self._fleet.pushed(machine)
        if host is not None:
            self._fleet.failed(host, kind, sentence, asked=self._fleet.now().monotonic)

    def _checked(self, host: str, ticket: str, held: float) -> tuple[_Sender, float | None, str]:
        """Use up the ticket. Return how long the push was on its way, and the next ticket.

        None in place of the way: the ticket is not the one that is due, or the way was too long.
        """
        now = self._fleet.now().monotonic
        with self._lock:
            sender = self._senders.get(host)
            if sender is None:
                self._forget_strangers()
                sender = self._senders[host] = _Sender(ticket=self._ticket(), issued=now)
            if not secrets.compare_digest(ticket.encode(), sender.ticket.encode()):
                if ticket.startswith(self._life):
                    self._not_taken(host, sender, now, _REPEATED)
                return sender, None, sender.ticket
            since_issue = now - sender.issued
            sender.ticket, sender.issued = self._ticket(), now
            way = max(0.0, since_issue - held) if math.isfinite(held) else math.inf
            if way > LONGEST_WAY_SECONDS:
                self._not_taken(
                    host, sender, now, f"a push was {duration(way)} on its way: not taken"
                )
                return sender, None, sender.ticket
            return sender, way, sender.ticket

    def _not_taken(self, host: str, sender: _Sender, now: float, words: str) -> None:
        self._fleet.failed(host, "failed", f"failed: {words}", asked=now)
        if sender.warned is None or now - sender.warned > QUIET_SECONDS:
            log.warning("%s: %s", host, words)
            sender.warned = now

    def _ticket(self) -> str:
        return f"{self._life}-{secrets.token_hex(8)}"

    def _forget_strangers(self) -> None:
        """Drop what is kept of hosts that are no longer configured."""
        if len(self._senders) > len(self._fleet.records()):
            there = {record.entry.name for record in self._fleet.records()}
            self._senders = {host: kept for host, kept in self._senders.items() if host in there}

    def _arrived(self, host: str, reading: Reading, way: float) -> None:
        age = reading.summary.sample_age_seconds
        if age is not None:
            reading = reading.aged(max(0.0, age) + way, reading.summary.sampler_error)
        self._fleet.answered(host, reading, asked=self._fleet.now().monotonic)

    def _bad(self, host: str, kind: str, words: str) -> Refused:
        self._fleet.failed(host, kind, words, asked=self._fleet.now().monotonic)
        return Refused(kind, words)


_REPEATED = (
    "a push with a ticket that was used before: not taken. It was recorded and sent again, its "
    "answer was lost, or two agents push under this name"
)


async def watch_pushed(fleet: Fleet) -> None:
    """Say of each host that pushes when it has fallen silent, until cancelled."""
    silent: set[str] = set()
    while True:
        for record in fleet.records():
            if record.entry.source == "pushed":
                watch_one(fleet, record, silent)
        await asyncio.sleep(WATCH_SECONDS)


def watch_one(fleet: Fleet, record: Record, silent: set[str]) -> None:
    """Look at one host; `silent` holds the names of those that were told already."""
    host, now = record.entry.name, fleet.now().monotonic
    every = record.expected_every(fleet.poll_interval())
    overdue = record.answered is None or now - record.answered > 2 * every + WATCH_SECONDS
    if not overdue:
        if host in silent:
            log.info("%s: pushes", host)
        silent.discard(host)
        return
    words = _NEVER if record.answered is None else f"pushes every {every:g} s, and {_SILENT}"
    sentence = f"silent: {record.entry.host} {words}"
    # A push that was refused is the better reason, as long as it is tried again: anybody may have
    # sent it.
    failure = record.failure
    lapsed = (
        failure is not None
        and failure.kind != "silent"
        and fleet.now().wall - failure.at > REFUSAL_SECONDS
    )
    if failure is None or lapsed:
        fleet.failed(host, "silent", sentence, asked=now)
    if host not in silent:
        log.log(
            logging.INFO if record.answered is None else logging.WARNING, "%s: %s", host, sentence
        )
    silent.add(host)


_NEVER = "has not pushed yet. Start 'gpumon agent --push URL' there"
_SILENT = (
    "nothing came. Is its agent running, and does it reach this server? "
    "Its log says more: journalctl -u gpumon-agent"
)
