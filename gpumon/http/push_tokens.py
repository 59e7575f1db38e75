"""Tokens of those who push: each may be bound to the one host that may use it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from pathlib import Path
from typing import NamedTuple

from gpumon.errors import SetupError
from gpumon.http.auth import token_lines


class Caller(NamedTuple):
    """Who pushes."""

    name: str
    """What it calls itself; "" where it does not say, or not in a form that can be read."""
    token: bytes


class PushTokens:
    """The tokens of a file, "TOKEN" or "NAME TOKEN" a line. A bound one is good for NAME alone."""

    __slots__ = ("_known",)

    def __init__(self, lines: list[str]) -> None:
        self._known = [_bound(line) for line in lines]

    def __repr__(self) -> str:
        return f"<PushTokens: {len(self._known)}>"

    @classmethod
    def load(cls, path: Path, key: str) -> PushTokens:
        """Return the tokens in the file at `path`; `key` is its name in config.yml.

        Raises SetupError when it can't be used.
        """
        lines = token_lines(path, key)
        if any(len(line.split()) > 2 for line in lines):
            raise SetupError(f"{key}: {path} holds a line that is neither TOKEN nor NAME TOKEN")
        return cls(lines)

    def take_over(self, newer: PushTokens) -> None:
        """Become the same as `newer`, for everybody who holds these tokens."""
        self._known = newer._known

    def accepts(self, caller: Caller) -> bool:
        """Return whether the caller's token is one that it may use.

        Takes the same time whichever token it is, and whether it is one.
        """
        given, name = _digest(caller.token), caller.name.lower()
        known = False
        for bound_to, digest in self._known:
            known |= hmac.compare_digest(given, digest) and bound_to in (None, name)
        return known and bool(caller.token)


def caller_of(authorization: str | None) -> Caller:
    """Return who an Authorization header says that it is: Basic, NAME and TOKEN."""
    scheme, _, rest = (authorization or "").strip().partition(" ")
    if scheme.lower() != "basic":
        return Caller("", b"")
    try:
        name, _, token = base64.b64decode(rest.strip(), validate=True).partition(b":")
        return Caller(name.decode("ascii"), token)
    except (binascii.Error, ValueError):
        return Caller("", b"")


def _bound(line: str) -> tuple[str | None, bytes]:
    name, _, token = line.rpartition(" ")
    return name.strip().lower() or None, _digest(token.encode())


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
