"""YAML text -> a tree of nodes that know their line. Nothing is ever constructed from the text.

YAML guesses types: `on` is true, `1e3` a number, `1:30` ninety, `0100` sixty-four. So a node keeps
the text as it was written, and the table of settings says what that text has to be. What YAML
offers beyond plain values is refused: an alias lets a short file grow without bound, a tag asks for
objects.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

from gpumon.config.faults import Faults, quote

MAX_DEPTH = 16
"""Far above the four levels that a configuration has, far below what recursion can take."""

_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})


class Scalar(msgspec.Struct, frozen=True):
    """A single value, as text."""

    line: int
    text: str
    quoted: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether YAML reads it as null."""
        return not self.quoted and self.text in _NOTHING


class Items(msgspec.Struct, frozen=True):
    """A list."""

    line: int
    items: list[Node]


class Fields(msgspec.Struct, frozen=True):
    """A mapping in the order of the file. A key that stands twice is in here twice."""

    line: int
    pairs: list[tuple[Scalar, Node]]


class Broken(msgspec.Struct, frozen=True):
    """Something that was refused already; nobody needs to complain about it again."""

    line: int


Node = Scalar | Items | Fields | Broken


class _TooDeep(Exception):
    pass


class _Events:
    """PyYAML's events, one after the other."""

    def __init__(self, text: str) -> None:
        self._loader: Any = yaml.SafeLoader(text)

    def __bool__(self) -> bool:
        return bool(self._loader.check_event())

    def next(self) -> Any:
        return self._loader.get_event()

    @property
    def mark(self) -> Any:
        """How far the text was read."""
        return self._loader.get_mark()


def read_document(text: str, faults: Faults) -> Node | None:
    """Return the root node; None for an empty document or for one that can't be read at all.

    Every fault is added to `faults`.
    """
    try:
        events = _Events(text)
    except yaml.reader.ReaderError as error:
        line, column = _place(text, error.position)
        code = ord(error.character) if isinstance(error.character, str) else error.character
        faults.at(
            line, f"the character U+{code:04X} can't stand in YAML. Remove it.", column=column
        )
        return None
    try:
        return _read(events, faults)
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or events.mark
        problem = error.problem or "can't be read"
        faults.at(
            mark.line + 1, f"not valid YAML: {problem}.{_hint(problem)}", column=mark.column + 1
        )
    except _TooDeep:
        faults.at(
            events.mark.line + 1,
            f"nested more than {MAX_DEPTH} levels deep. No setting needs more than four.",
        )
    except (ValueError, OverflowError):
        # PyYAML lets these through: "\UFFFFFFFF", or a %YAML line with thousands of digits.
        faults.at(
            events.mark.line + 1,
            "not valid YAML: a number or an escape that is too large. Write it differently.",
        )
    return None


def _read(events: _Events, faults: Faults) -> Node | None:
    root: Node | None = None
    documents = 0
    while events:
        event = events.next()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents == 2:
                faults.at(line, 'a second document starts here ("---"). Keep one of them.')
                break
        elif isinstance(event, yaml.NodeEvent):
            root = _node(events, event, faults, 0)
    return root


def _node(events: _Events, event: Any, faults: Faults, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise _TooDeep
    line = event.start_mark.line + 1
    if isinstance(event, yaml.AliasEvent):
        faults.at(
            line,
            f"*{event.anchor}: aliases are not used in this file. "
            "Write the value out, or put it in quotes if it is a text.",
        )
        return Broken(line)
    if event.anchor is not None:
        faults.at(line, f"&{event.anchor}: anchors are not used in this file. Remove it.")
    node: Node
    if isinstance(event, yaml.ScalarEvent):
        node = Scalar(line, event.value, quoted=event.style is not None)
    elif isinstance(event, yaml.SequenceStartEvent):
        node = Items(line, _items(events, faults, depth))
    else:
        node = Fields(line, _pairs(events, faults, depth))
    if event.tag in (None, "!"):
        return node
    tag = quote(event.tag.replace("tag:yaml.org,2002:", "!!"))
    faults.at(line, f"tags such as {tag} are not used in this file. Remove it.")
    return Broken(line)


def _items(events: _Events, faults: Faults, depth: int) -> list[Node]:
    items = []
    while not isinstance(event := events.next(), yaml.SequenceEndEvent):
        items.append(_node(events, event, faults, depth + 1))
    return items


def _pairs(events: _Events, faults: Faults, depth: int) -> list[tuple[Scalar, Node]]:
    pairs = []
    while not isinstance(event := events.next(), yaml.MappingEndEvent):
        key = _node(events, event, faults, depth + 1)
        value = _node(events, events.next(), faults, depth + 1)
        if isinstance(key, Scalar):
            pairs.append((key, value))
        elif not isinstance(key, Broken):
            faults.at(key.line, "expected a key, found a list or a mapping. Write key: value.")
    return pairs


def _place(text: str, position: int) -> tuple[int, int]:
    before = text[:position]
    return before.count("\n") + 1, position - before.rfind("\n")


def _hint(problem: str) -> str:
    if re.search(r"'\\t'|tab", problem):
        return " Indent with blanks, not with tabs."
    if problem.startswith("mapping values are not allowed"):
        return " Put a text with a colon in quotes; check colon and indentation of the line before."
    if "cannot start any token" in problem:
        return " Put the text in quotes."
    if problem.startswith("could not find expected ':'"):
        return ' Write "key: value", with a blank after the colon.'
    return " Check the indentation, brackets and quotes in this line and the one before."
