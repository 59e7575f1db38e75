"""How a fault in the configuration is put into words, and the list that collects them all."""

from __future__ import annotations

import re
import sys

from gpumon.errors import ConfigError
from gpumon.text import clean

MAX_TOLD = 100

_USER = re.compile(r"\A([A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
_HIDDEN = r"\1…@"


class Refused(Exception):
    """A value that can't be taken. The reader knows what it found, its caller knows where."""

    def __init__(self, found: str, advice: str = "", *, expected: str = "", at: str = "") -> None:
        super().__init__(found)
        self.found = found
        self.advice = advice
        self.expected = expected
        """In place of what the kind of the setting expects in general."""
        self.at = at
        """The part of the value that is wrong, such as ".port"."""


class Faults:
    """All faults of one load, told in the order of the file, those from elsewhere last."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._found: list[tuple[int, str]] = []

    def at(self, line: int, sentence: str, *, column: int | None = None) -> None:
        """Add a fault in the given line of the file; line 0: elsewhere, the sentence says where."""
        if line == 0:
            self._found.append((sys.maxsize, sentence))
            return
        place = f"{self.label}:{line}" if column is None else f"{self.label}:{line}:{column}"
        self._found.append((line, f"{place}: {sentence}"))

    @property
    def sentences(self) -> list[str]:
        told = [sentence for _, sentence in sorted(self._found, key=lambda fault: fault[0])]
        more = len(told) - MAX_TOLD
        return told if more <= 0 else [*told[:MAX_TOLD], f"{self.label}: and {more} more faults."]

    def raise_if_any(self) -> None:
        if self._found:
            raise ConfigError(self.sentences)


def sentence(path: str, expected: str, refused: Refused, instead: str) -> str:
    """Return one line: what was expected at `path`, what was found, what to do.

    `instead` is the cure that always works; the advice of `refused` is better where there is one.
    """
    expected = refused.expected or expected
    advice = refused.advice or instead
    return f"{path}{refused.at}: expected {expected}, found {refused.found}. {advice}".rstrip()


def shown(text: str) -> str:
    """Return a text for a message: one printable line, short.

    What stands before an "@" is left out: addresses carry passwords there.
    """
    return clean(_USER.sub(_HIDDEN, text, count=1), 60)


def quote(text: str) -> str:
    """Return the same in quotes."""
    return f'"{shown(text)}"'
