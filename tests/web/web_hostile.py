"""Texts that somebody would like a page to take for something else, everywhere."""

from __future__ import annotations

from typing import Any

import msgspec

HOSTILE = [
    '"><script>alert(1)</script><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)' x='",
    "</title></td></table></main><iframe src=//evil.example>",
    "{{7*7}} % import os",
    "javascript:alert(1)",
    "\x1b]0;owned\x07\x1b[31m\u202egpj.exe\u2066\x00",
    "a\r\nSet-Cookie: b=c\n\n",
    "x" * 10_000,
    "&lt;b&gt;&amp;",
]
KEPT = {"state", "host_state", "schema", "level"}


def _texts(value: Any, rename: Any, key: str = "") -> Any:
    """Return `value` with every text in it renamed, the states apart; keys of mappings too."""
    if isinstance(value, dict):
        open_keys = key in ("labels", "unknown")
        return {
            (rename(name) if open_keys else name): _texts(inner, rename, name)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_texts(inner, rename, key) for inner in value]
    if isinstance(value, str) and key not in KEPT:
        return rename(value)
    return value


def renamed(value: Any, kind: type, word: str, numbers: dict[str, int]) -> Any:
    """Return `value` with each text in it replaced by `word` and a number of its own."""

    def rename(text: str) -> str:
        return f"{word}{numbers.setdefault(text, len(numbers))}"

    return msgspec.convert(_texts(msgspec.to_builtins(value), rename), kind)
