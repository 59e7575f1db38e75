"""Cleaning of foreign text, once, where it enters.

Names of GPUs, users, hosts and commands are written by drivers and by anybody who can start a
process. One control character makes a whole XML-RPC answer unreadable, an escape code paints other
people's terminals, a bidi mark turns a line around.
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

_BLANK = re.compile(r"\s+")
# C0 and C1 controls, DEL, lone surrogates, bidi marks and overrides, zero-width and other invisible
# format characters, line and paragraph separators, non-characters.
_UNSAFE = re.compile(
    "[\u0000-\u001f\u007f-\u009f\ud800-\udfff\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
_PLAIN = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*\Z")


def clean(value: str | bytes | None, limit: int = 256) -> str:
    """Return `value` as one printable line of at most `limit` characters.

    Bytes are read as UTF-8, undecodable ones become U+FFFD, as does every character that could
    break an XML document or act on a terminal. Runs of white space become one blank. A text that
    was cut ends in "…". None gives "".
    """
    if not value:
        return ""
    if isinstance(value, bytes):
        # Twice the limit in characters is at most eight times in bytes: no work on megabytes.
        value = value[: limit * 8].decode("utf-8", errors="replace")
    if len(value) <= limit and _PLAIN.match(value):
        return value
    longer = len(value) > limit * 8
    value = _UNSAFE.sub(REPLACEMENT, _BLANK.sub(" ", value[: limit * 8])).strip()
    if len(value) > limit or longer:
        return value[: limit - 1] + "…"
    return value
