"""One rule of `agent.owner_rules`."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any

from gpumon.config.document import Broken, Fields, Node
from gpumon.config.faults import Refused, quote
from gpumon.config.kinds import Kind, Text, YesNo, found
from gpumon.config.patterns import is_quick
from gpumon.config.types import OwnerRule

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_YES = YesNo()


@dataclass(frozen=True)
class _Variable:
    expected: str = "the name of an environment variable"

    def read(self, node: Node) -> str:
        name = Text(100).read(node)
        if not _VARIABLE.match(name):
            raise Refused(found(node))
        return name


@dataclass(frozen=True)
class _True:
    expected: str = "true"

    def read(self, node: Node) -> bool:
        if not _YES.read(node):
            raise Refused(found(node), "Remove the rule to go without.")
        return True


@dataclass(frozen=True)
class _Pattern:
    expected: str = 'a regular expression with a group "user", such as "^(?P<user>[a-z]+)-"'

    def read(self, node: Node) -> str:
        text = Text(200).read(node)
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise Refused(found(node), f"It can't be read: {error}.") from None
        if "user" not in pattern.groupindex:
            raise Refused(found(node), "Write (?P<user>...) around the part that is the name.")
        if not is_quick(text):
            raise Refused(
                found(node),
                "A name can be made for which it takes very long: whoever starts a container could "
                'stop the agent. Begin it with "^", repeat nothing that has a + or * in it, and '
                "use no more than four of these.",
            )
        return text


_KEYS: dict[str, Kind] = {
    "label": Text(200),
    "environment": _Variable(),
    "home_mount": _True(),
    "container_name": _Pattern(),
}
_ALL_KEYS = (*_KEYS, "any")


@dataclass(frozen=True)
class OwnerRuleKind:
    """A mapping with exactly one of the four kinds of a rule, and `any` beside it."""

    expected: str = "a rule: label, environment, home_mount or container_name"

    def read(self, node: Node) -> OwnerRule:
        if not isinstance(node, Fields):
            raise Refused(found(node), "Write {environment: JOB_OWNER}, for example.")
        values: dict[str, Any] = {}
        for key, value in node.pairs:
            if key.text in values:
                raise Refused(f"the key {quote(key.text)} twice", "Remove one of them.")
            values[key.text] = _value(key.text, value)
        kinds = [key for key in values if key != "any"]
        if len(kinds) != 1:
            several = "several of them" if kinds else "none of them"
            raise Refused(several, "Write one of them in each rule; the first that fits wins.")
        return OwnerRule(**values)


def _value(key: str, node: Node) -> object:
    kind = _YES if key == "any" else _KEYS.get(key)
    if kind is None:
        near = difflib.get_close_matches(key, _ALL_KEYS, n=1)
        advice = f'Did you mean "{near[0]}"?' if near else f"Known keys: {', '.join(_ALL_KEYS)}."
        raise Refused(f"the unknown key {quote(key)}", advice)
    if isinstance(node, Broken):  # refused already
        return None
    try:
        return kind.read(node)
    except Refused as refused:
        advice = refused.advice or "Correct or remove it."
        raise Refused(refused.found, advice, expected=kind.expected, at=f".{key}") from None
