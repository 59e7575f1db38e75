"""Who may ask: a token, and a limit on how many wrong ones an address may try.

An address that has shown a right token is never shut out, whatever else comes from it: a server
keeps its way in though somebody beside it guesses. One that has not may try a few, then as many as
it forgets with time, and in between it is turned away without a look at what it sent.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from gpumon.http.auth import Tokens
from gpumon.http.seldom import Seldom

log = logging.getLogger(__name__)

TRIES = 30
"""So many wrong tokens at once; a server with an old token polls for minutes before that."""
FORGOTTEN_PER_SECOND = 0.5
MOST_ADDRESSES = 4096


class _Caller(msgspec.Struct):
    """What is known of one address. `wrong` as of the moment `at`."""

    wrong: float = 0.0
    at: float = 0.0
    trusted: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """Why somebody may not ask."""

    retry_after: int | None = None
    """In seconds, where it is for trying too often."""
    showed_token: bool = True
    """Whether anything was shown, so that it was wrong."""


class Doorman:
    """Decides by the Authorization header and the address. For any thread."""

    def __init__(
        self, name: str, tokens: Tokens, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._tokens = tokens
        self._clock = clock
        self._callers: OrderedDict[str, _Caller] = OrderedDict()
        self._lock = threading.Lock()
        self._told = Seldom(clock=clock)

    def refusal(self, authorization: str | None, address: str) -> Refusal | None:
        """Return None where the caller may ask. Refusals are logged, once in a while."""
        with self._lock:
            caller = self._caller(_group(address))
            if not caller.trusted and caller.wrong >= TRIES:
                seconds = math.ceil((caller.wrong - TRIES + 1) / FORGOTTEN_PER_SECOND)
                self._tell(address, "too many wrong tokens")
                return Refusal(seconds)
            if self._tokens.accepts(authorization):
                caller.trusted = True
                return None
            if authorization is not None:
                caller.wrong += 1
        self._tell(address, "no token" if authorization is None else "wrong token")
        return Refusal(showed_token=authorization is not None)

    def _caller(self, group: str) -> _Caller:
        now = self._clock()
        caller = self._callers.setdefault(group, _Caller(at=now))
        self._callers.move_to_end(group)
        while len(self._callers) > MOST_ADDRESSES:
            self._callers.popitem(last=False)
        caller.wrong = max(0.0, caller.wrong - (now - caller.at) * FORGOTTEN_PER_SECOND)
        caller.at = now
        return caller

    def _tell(self, address: str, reason: str) -> None:
        if self._told.allows((address, reason)):
            log.warning("%s: %s was refused: %s", self._name, address, reason)


def _group(address: str) -> str:
    """Return what counts as one caller: of IPv6 the network, since one machine has all of it."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4:
        return str(ip)
    return str(ipaddress.ip_network((ip, 64), strict=False))
