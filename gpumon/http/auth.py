"""Tokens: who may ask. Sent as Bearer, or as the password of Basic, which every client can."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gpumon.errors import SetupError

log = logging.getLogger(__name__)

SHORTEST_TOKEN = 16
"""A shorter token can be guessed."""

_MAKE_ONE = "write one token a line into it, for instance with: openssl rand -hex 32"


class Tokens:
    """The tokens of `token_file`. The first is sent to others, all are accepted.

    Several allow a change without a gap: add the new one everywhere, move it to the top, then drop
    the old one.
    """

    __slots__ = ("_digests", "first")

    def __init__(self, tokens: list[str]) -> None:
        if not tokens or not all(tokens):
            raise ValueError("at least one token, and no empty one")
        self.first = tokens[0]
        self._digests = [_digest(token.encode()) for token in tokens]

    def __repr__(self) -> str:
        return f"<Tokens: {len(self._digests)}>"

    @classmethod
    def load(cls, path: Path | str) -> Tokens:
        """Return the tokens in the file at `path`: one a line; blank lines and "# ..." don't count.

        Logs a warning when others may read the file. Raises SetupError when it can't be used.
        """
        return cls(token_lines(Path(path), "token_file"))

    def take_over(self, newer: Tokens) -> None:
        """Become the same as `newer`, for everybody who holds these tokens."""
        self.first, self._digests = newer.first, newer._digests

    def accepts(self, authorization: str | None) -> bool:
        """Return whether an Authorization header carries one of the tokens.

        Takes the same time whichever token it is, and whether it is one.
        """
        given = _digest(_token_of(authorization or ""))
        known = False
        for digest in self._digests:
            known |= hmac.compare_digest(given, digest)
        return known


def token_lines(path: Path, key: str) -> list[str]:
    """Return the lines of a file of tokens, as `Tokens.load` says; `key` is its name in config.yml.

    Raises SetupError.
    """
    try:
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            lines = [line.strip() for line in file]
    except FileNotFoundError as error:
        raise SetupError(f"{key}: {path} does not exist; {_MAKE_ONE}") from error
    except UnicodeDecodeError as error:
        raise SetupError(f"{key}: {path} is not a text file; {_MAKE_ONE}") from error
    except OSError as error:
        raise SetupError(
            f"{key}: {path} can't be read ({error.strerror}); the user that runs gpumon "
            "must be allowed to read it"
        ) from error
    tokens = [line for line in lines if line and not line.startswith("#")]
    if not tokens:
        raise SetupError(f"{key}: {path} holds no token; {_MAKE_ONE}")
    warning = _exposed(path, status, key)
    if warning is not None:
        log.warning("%s", warning)
    return tokens


def token_doubts(path: Path, key: str, *, named: bool = False) -> Iterator[str]:
    """Yield what may not be meant in a file of tokens that can be used; never what is in it.

    `named`: a line may be "NAME TOKEN". A file that can't be read is told elsewhere.
    """
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        token = line.rpartition(" ")[2].strip() if named else line
        if any(letter.isspace() for letter in token):
            yield (
                f"{key}: line {number} of {path} has a blank in it, and the whole line is one "
                "token. Write one token a line."
            )
        if not token.isascii():
            yield (
                f"{key}: line {number} of {path} has letters beyond ASCII, with which most "
                "programs can't log in. Make another one: openssl rand -hex 32."
            )
        if len(token) < SHORTEST_TOKEN:
            yield (
                f"{key}: line {number} of {path} holds a token of less than {SHORTEST_TOKEN} "
                "characters, which can be guessed. Make another one: openssl rand -hex 32."
            )


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _token_of(authorization: str) -> bytes:
    """Return what stands in the header as a token; b"" (which none is) where nothing does."""
    scheme, _, rest = authorization.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return rest.encode("latin-1", errors="replace")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _exposed(path: Path, status: os.stat_result, key: str) -> str | None:
    """Say it when more people than needed can read the file.

    A file of root's that the service reads through its group (root:gpumon 0640) is as it should be.
    """
    mode = stat.S_IMODE(status.st_mode)
    ours = status.st_uid == os.geteuid()
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP) or (ours and mode & stat.S_IRGRP):
        return (
            f"{key}: {path} can be read or written by more users than needed "
            f"(mode {mode:04o}); close it with: chmod {'600' if ours else '640'} {path}"
        )
    return None
