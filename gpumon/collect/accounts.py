"""Names of uids, from the account database of the host, which may be slow or silent."""

from __future__ import annotations

import math
import pwd
import re
from collections.abc import Callable

from gpumon.collect.patience import Patience
from gpumon.text import clean

SILENT = "the account database does not answer"

NAME_LENGTH = 64

_NSSWITCH = "/etc/nsswitch.conf"
_LOCAL_SOURCES = frozenset({"files", "systemd", "db", "altfiles", "extrausers", "mymachines"})
"""Sources of accounts that are files of this host: they are never down."""
_PATIENCE_SECONDS = 1.0
_REFRESH_SECONDS = 60.0
_MOST_BYTES = 64 * 1024


def look_up(uid: int) -> str | None:
    """Return the login name through NSS, so from LDAP and the like too; None where it has none."""
    try:
        return clean(pwd.getpwuid(uid).pw_name, NAME_LENGTH) or None
    except (KeyError, OSError):
        return None


def account_named(name: str) -> str | None:
    """Return `name` where there is an account of exactly that name, else None."""
    try:
        return name if pwd.getpwnam(name).pw_name == name else None
    except (KeyError, OSError, ValueError):  # ValueError: a character that no name can have
        return None


class Accounts:
    """Login names by uid, and which names there are.

    What was known stays known while the account database is silent.
    """

    def __init__(
        self,
        look_up: Callable[[int], str | None] = look_up,
        patience: float = _PATIENCE_SECONDS,
        *,
        account_named: Callable[[str], str | None] = account_named,
        nsswitch: str = _NSSWITCH,
    ) -> None:
        self._names = Patience(look_up, patience)
        self._accounts = Patience(account_named, patience)
        self._nsswitch = nsswitch
        self._is_local: bool | None = None
        self._looked = -math.inf
        self._now = 0.0

    def begin(self, now: float) -> None:
        """Begin a sample at `now` (seconds, monotonic), with new patience."""
        self._now = now
        self._names.begin(now)
        self._accounts.begin(now)

    def name(self, uid: int) -> tuple[str, str | None]:
        """Return the login name, or "uid:1234", and a note where the database did not answer."""
        name, answered = self._names.answer(uid)
        return name or f"uid:{uid}", None if answered else SILENT

    def known_name(self, uid: int) -> str | None:
        """Return the login name; None where the database has none or did not answer."""
        return self._names.answer(uid)[0]

    def exists(self, name: str) -> bool | None:
        """Return whether there is an account of that name; None: the database did not answer."""
        found, answered = self._accounts.answer(name)
        return found is not None if answered else None

    def are_local(self) -> bool:
        """Return whether a uid without a name has none, for sure.

        A directory (LDAP, SSSD, winbind, NIS) that is down says "there is none" like one that has
        none. So it is for sure only where the host has no such source of accounts.
        """
        if self._is_local is None or self._now - self._looked >= _REFRESH_SECONDS:
            self._is_local, self._looked = _is_local(self._nsswitch), self._now
        return self._is_local


def _is_local(nsswitch: str) -> bool:
    try:
        with open(nsswitch, encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return True  # the C library's own default: files
    except OSError:
        return False
    for line in text.splitlines():
        database, _, sources = line.partition("#")[0].partition(":")
        if database.strip() == "passwd":
            named = re.sub(r"\[[^\]]*\]", " ", sources).split()
            return set(named) <= _LOCAL_SOURCES
    return True
