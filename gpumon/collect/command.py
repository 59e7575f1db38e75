"""The command line of a process, with what looks like a secret masked.

A mask helps against the usual forms; it can't know every program's own. So the server's faces show
no command line at all, and the agent's readers get this one.
"""

from __future__ import annotations

import re

from gpumon.text import clean

LENGTH = 300
MASK = "***"

_LOOKED_AT = 4096
"""Characters. Whatever comes behind them is not shown, however much a mask shortens the rest."""

# In the text arguments are parted by NUL. A name is tried once, where it begins, so that a long
# argument without any name costs no more than its length.
_NAME = re.compile(r"(?<![\w.+-])([\w.+-]+)([\"']?\s*[:=]\s*|[\s\0]+)")
_SECRET = re.compile(
    r"secret|passw|passphrase|credential|(?:keys?|token|auth|authorization|pass|pwd?)\Z",
    re.IGNORECASE,
)
_REST_OF_ARGUMENT = re.compile(r"[^\0]*")
_WORD = re.compile(
    r"(?:(?:bearer|basic|token)\s+)?(?:\"[^\"\0]*\"?|'[^'\0]*'?|[^\s\0\"']*)", re.IGNORECASE
)
_LOGIN_IN_URL = re.compile(r"(://)[^\s\0/]*@")


def command_line(arguments: list[str]) -> str | None:
    """Return the command line for people: masked, cleaned and cut; None where there is none."""
    return clean(" ".join(masked(arguments)), LENGTH) or None


def masked(arguments: list[str]) -> list[str]:
    """Return the beginning of the argument list with secrets replaced by `***`.

    Known by their names: `--token abc`, `--password=abc`, `API_KEY=abc`, `Authorization: Bearer
    abc`, also within an argument (`sh -c "API_KEY=abc run"`); and the login in `https://me:pw@host`.
    A name is one of a secret where it ends in key, token, auth, pass, pwd or pw, or holds secret,
    passw, passphrase or credential, whatever its letters' case.
    """
    text = "\0".join(arguments)[:_LOOKED_AT]
    parts = []
    done = 0
    for found in _NAME.finditer(text):
        name, between = found.groups()
        begin, end = found.span()
        if begin < done or not _SECRET.search(name):
            continue
        assigned = ":" in between or "=" in between
        if not assigned and (name[0] != "-" or text[end : end + 1] in ("", "-")):
            continue  # a word before another, or an option without a value
        whole = "\0" in between or (assigned and (begin == 0 or text[begin - 1] == "\0"))
        value = (_REST_OF_ARGUMENT if whole else _WORD).match(text, end)
        if value is None or value.end() == end:
            continue
        parts += [text[done:end], MASK]
        done = value.end()
    text = "".join([*parts, text[done:]])
    return _LOGIN_IN_URL.sub(rf"\1{MASK}@", text).split("\0")
