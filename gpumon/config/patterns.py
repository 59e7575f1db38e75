"""How long a regular expression may take on the worst of names.

Names of containers are written by those who start them, and Python's `re` can't be interrupted. So
an expression is refused beforehand when a name of NAME_LENGTH characters could keep it busy: when
it can be matched in too many ways.
"""

from __future__ import annotations

import importlib
from typing import Any


def _part_of_re(name: str, before_3_11: str) -> Any:
    try:
        return importlib.import_module(f"re.{name}")
    except ImportError:
        return importlib.import_module(before_3_11)


_codes = _part_of_re("_constants", "sre_constants")
_parser = _part_of_re("_parser", "sre_parse")

NAME_LENGTH = 128
"""Longest name that an expression is matched with."""

_MOST_WAYS = 4 * NAME_LENGTH**4
"""Four free parts, such as .*, of which each can end anywhere: less than a tenth of a second."""

_MOST_TIMES = 3
"""A part that has several ways by itself may be repeated so often."""

_REPEATS = tuple(
    getattr(_codes, name)
    for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
    if hasattr(_codes, name)
)


def is_quick(pattern: str) -> bool:
    """Return whether no name of NAME_LENGTH characters keeps the expression busy for long.

    `pattern` is a regular expression that compiles. Searching for it, unless it begins with "^",
    tries it at each place of the name.
    """
    tree = _parser.parse(pattern)
    first = tree[0] if len(tree) else None
    anchored = first is not None and first[0] is _codes.AT
    return _ways(tree) * (1 if anchored else NAME_LENGTH) <= _MOST_WAYS


def _ways(tree: Any) -> int:
    """Return how many ways there are at most to match a sequence, up to a little over the limit."""
    ways = 1
    for code, argument in tree:
        ways *= _ways_of(code, argument)
        if ways > _MOST_WAYS:
            return _MOST_WAYS + 1
    return ways


def _ways_of(code: Any, argument: Any) -> int:
    if code in _REPEATS:
        least, most, body = argument
        counts = max(1, min(int(most), NAME_LENGTH - 1) - int(least) + 1)
        each = _ways(body)
        if each == 1:
            return counts
        # All ways of the part, each time: that grows beyond all bounds very soon.
        return counts * each**most if most <= _MOST_TIMES else _MOST_WAYS + 1
    if code is _codes.SUBPATTERN:
        return _ways(argument[-1])
    if code is _codes.BRANCH:
        return sum(_ways(branch) for branch in argument[1])
    if code in (_codes.ASSERT, _codes.ASSERT_NOT):
        return _ways(argument[1])
    if code is _codes.GROUPREF_EXISTS:
        return sum(_ways(branch) for branch in argument[1:] if branch)
    if code is getattr(_codes, "ATOMIC_GROUP", None):
        return _ways(argument)
    return 1
