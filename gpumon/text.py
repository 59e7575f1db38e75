"""Cleaning of foreign text, once, where it enters.

Names of GPUs, users, hosts and commands are written by drivers and by anybody who can start a
process. One control character makes a whole XML-RPC answer unreadable, an escape code paints other
people's terminals, a bidi mark turns a line around, an invisible letter makes two names look alike.
"""

from __future__ import annotations

import re
import unicodedata

REPLACEMENT = "\ufffd"
MOST_MARKS = 4
"""So many accents in a row may sit on one letter: more than any script needs, too few to climb
over the lines above."""

_BLANK = re.compile(r"\s+")
# Letters and marks that Unicode counts as printable though nobody sees them: fillers of Hangul,
# variation selectors, the empty Braille cell and others.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
_PLAIN = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*\Z")


def clean(value: str | bytes | None, limit: int = 256) -> str:
    """Return `value` as one printable line of at most `limit` characters.

    Bytes are read as UTF-8, undecodable ones become U+FFFD, as does every character that could
    break an XML document, act on a terminal, reorder a line or hide: controls, surrogates, bidi and
    other format characters, private use, unassigned ones. Runs of white space become one blank. A
    text that was cut ends in "…". None gives "".
    """
    if not value or limit < 1:
        return ""
    # A character takes four bytes at most; the rest allows for blanks. No work on megabytes.
    most = limit * 8
    longer = len(value) > most
    if isinstance(value, bytes):
        value = value[:most].decode("utf-8", errors="replace")
    if not longer and len(value) <= limit and _PLAIN.match(value):
        return value
    value = _visible(_BLANK.sub(" ", value[:most]).strip())
    if len(value) > limit or longer:
        return value[: limit - 1] + "…"
    return value


def _visible(value: str) -> str:
    """Return `value` with U+FFFD for every character that has no place in a line of text."""
    letters = []
    marks = MOST_MARKS  # an accent needs a letter before it, or it sits on what stands there
    for letter in _INVISIBLE.sub(REPLACEMENT, value):
        marks = marks + 1 if unicodedata.category(letter) in ("Mn", "Me") else 0
        bad = marks > MOST_MARKS or not letter.isprintable()
        letters.append(REPLACEMENT if bad else letter)
    return "".join(letters)
