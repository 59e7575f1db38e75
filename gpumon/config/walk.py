"""The two steps of the walk through a document: into a mapping, and to a value."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from typing import TypeVar

from gpumon.config.document import Broken, Fields, Node
from gpumon.config.faults import Faults, Refused, sentence, shown
from gpumon.config.kinds import found
from gpumon.config.settings import SETTINGS

T = TypeVar("T")


def fields_of(
    node: Node, path: str, known: Collection[str] | None, faults: Faults
) -> dict[str, Node]:
    """Return the fields of a mapping; unknown keys and keys that stand twice are faults.

    `path` is "" at the top. `known` None: every key is taken.
    """
    if isinstance(node, Broken):
        return {}
    if not isinstance(node, Fields):
        instead = 'Write "key: value", one a line' + (", or remove it." if path else ".")
        faults.at(
            node.line, sentence(path or "the file", "a mapping", Refused(found(node)), instead)
        )
        return {}
    fields: dict[str, Node] = {}
    first_lines: dict[str, int] = {}
    for key, value in node.pairs:
        full = f"{path}.{key.text}" if path else key.text
        if known is not None and key.text not in known:
            faults.at(key.line, f"{shown(full)}: unknown key. {_meant(key.text, path, known)}")
        elif key.text in fields:
            first = first_lines[key.text]
            faults.at(
                key.line,
                f"{shown(full)}: stands twice, first in line {first}. Remove one of them.",
            )
        else:
            fields[key.text] = value
            first_lines[key.text] = key.line
    return fields


def value_of(
    node: Node,
    path: str,
    read: Callable[[Node], T],
    faults: Faults,
    *,
    expected: str,
    instead: str = "",
) -> T | None:
    """Return what `read` makes of the node; None after a fault."""
    if isinstance(node, Broken):
        return None
    try:
        return read(node)
    except Refused as refused:
        faults.at(node.line, sentence(path, expected, refused, instead))
        return None


def is_near(key: str, known: Collection[str]) -> bool:
    """Whether the key looks like one of the known ones, misspelt."""
    return bool(_near(key, known))


def _near(key: str, known: Collection[str]) -> list[str]:
    return difflib.get_close_matches(key.lower().replace("-", "_"), known, n=1, cutoff=0.6)


def _meant(key: str, path: str, known: Collection[str]) -> str:
    """Return the cure: a similar key here, the same key in another section, or all keys."""
    near = _near(key, known)
    if near:
        return f'Did you mean "{near[0]}"?'
    elsewhere = [name for name in SETTINGS if name.rpartition(".")[2] == key]
    if elsewhere and not path.startswith("hosts["):
        return f"Did you mean {' or '.join(elsewhere)}?"
    return f"Known keys: {', '.join(known)}."
