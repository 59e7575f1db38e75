"""The entries of `hosts:`, in their short and long form, each with a name of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from gpumon.config.document import Broken, Fields, Items, Node, Scalar
from gpumon.config.faults import Faults, Refused, quote, sentence, shown
from gpumon.config.kinds import Text, YesNo, found
from gpumon.config.settings import HOST_KEYS
from gpumon.config.target import EXPECTED, Target, parse_target
from gpumon.config.types import HostEntry
from gpumon.config.walk import fields_of, value_of
from gpumon.text import clean

SELF = HostEntry(name="self", source="self", address="self")
"""This machine, asked without a network: what is watched when nothing is configured."""

_NAME = Text(64, without="/")
_LABEL = Text(64)
_FLAG = YesNo()

T = TypeVar("T")


class _Draft(msgspec.Struct, frozen=True):
    """An entry that could be read, before its name is settled."""

    line: int
    path: str
    target: Target
    name: str | None = None
    labels: dict[str, str] = {}
    drained: bool = False


def read_hosts(node: Node | None, *, rpc_port: int, tls: bool, faults: Faults) -> list[HostEntry]:
    """Return the hosts in the order of the file; without the key, this machine.

    `rpc_port` and `tls` hold for entries that say nothing else.
    """
    if node is None:
        return [SELF]
    if isinstance(node, Broken):
        return []
    if not isinstance(node, Items):
        advice = 'Write "- host1" below it, one line a host; "- self" is this machine, [] no host.'
        refused = Refused(found(node), advice)
        faults.at(node.line, sentence("hosts", "a list of hosts", refused, ""))
        return []
    reader = _Reader(rpc_port, tls, faults)
    drafts = [reader.draft(item, f"hosts[{index}]") for index, item in enumerate(node.items)]
    return _named([draft for draft in drafts if draft is not None], faults)


class _Reader:
    """Reads one entry after the other. What is wrong goes to `faults`."""

    def __init__(self, rpc_port: int, tls: bool, faults: Faults) -> None:
        self._rpc_port = rpc_port
        self._tls = tls
        self._faults = faults

    def draft(self, node: Node, path: str) -> _Draft | None:
        if not isinstance(node, Fields):
            target = value_of(
                node, path, self._target, self._faults, expected=EXPECTED, instead="Correct it."
            )
            return None if target is None else _Draft(node.line, path, target)
        slip = _slip(node)
        if slip is not None:
            self._faults.at(node.line, sentence(path, EXPECTED, slip, ""))
            return None
        fields = fields_of(node, path, list(HOST_KEYS), self._faults)
        name = self._value(fields, path, "name", _NAME.read, _NAME.expected)
        drained = self._value(fields, path, "drained", _FLAG.read, _FLAG.expected)
        target = self._value(fields, path, "address", self._target, EXPECTED)
        labels = self._labels(fields["labels"], f"{path}.labels") if "labels" in fields else {}
        # A missing address is most often the misspelt key that was refused just now.
        if "address" not in fields and len(fields) == len(node.pairs):
            missing = Refused("nothing", f"Add it, for example address: {name or 'host1'}.")
            self._faults.at(node.line, sentence(f"{path}.address", EXPECTED, missing, ""))
        if target is None:
            return None
        return _Draft(node.line, path, target, name, labels, bool(drained))

    def _target(self, node: Node) -> Target:
        # "- null" may be a host of that name; a lone "-" and "~" are none.
        if isinstance(node, Scalar) and node.text not in ("", "~"):
            return parse_target(node.text, rpc_port=self._rpc_port, tls=self._tls)
        raise Refused(found(node), "Write a host or remove the line.")

    def _labels(self, node: Node, path: str) -> dict[str, str]:
        fields = fields_of(node, path, None, self._faults)
        labels = {
            key: self._value(fields, path, key, _LABEL.read, _LABEL.expected) for key in fields
        }
        return {clean(key, 64): text for key, text in labels.items() if text is not None}

    def _value(
        self,
        fields: Mapping[str, Node],
        path: str,
        key: str,
        read: Callable[[Node], T],
        expected: str,
    ) -> T | None:
        """Return the value of a key; None where it is missing or wrong."""
        if key not in fields:
            return None
        full = f"{path}.{shown(key)}"
        return value_of(
            fields[key],
            full,
            read,
            self._faults,
            expected=expected,
            instead="Correct or remove it.",
        )


def _slip(node: Fields) -> Refused | None:
    """Recognise "- host1: 9043" and "- host1:", which YAML reads as a mapping."""
    if len(node.pairs) != 1:
        return None
    key, value = node.pairs[0]
    if key.text in HOST_KEYS or not isinstance(value, Scalar):
        return None
    if value.is_nothing:
        return Refused("a mapping", f"Remove the colon after {quote(key.text)}.")
    if value.text.isdigit():
        whole = quote(f"{key.text}:{value.text}")
        return Refused("a mapping", f"Write {whole}, without a blank after the colon.")
    return None


def _named(drafts: list[_Draft], faults: Faults) -> list[HostEntry]:
    """Give every entry its name. Names and addresses that stand twice are faults.

    The name is the host as typed, with its port where another entry has the same host and this one
    names a port of its own: a second agent on a host does not rename the first.
    """
    plain = Counter((draft.name or draft.target.typed).casefold() for draft in drafts)
    names: dict[str, int] = {}
    addresses: dict[str, int] = {}
    entries = []
    for draft in drafts:
        target = draft.target
        name = draft.name or target.typed
        if draft.name is None and target.own_port and plain[name.casefold()] > 1:
            name = f"[{name}]:{target.port}" if ":" in name else f"{name}:{target.port}"
        where = "self" if target.is_self else _address(target)
        if where in addresses:
            first = addresses[where]
            faults.at(
                draft.line,
                f"{draft.path}: {where} stands twice, first in line {first}. Remove one of them.",
            )
        elif name.casefold() in names:
            first = names[name.casefold()]
            faults.at(
                draft.line,
                f"{draft.path}: the name {quote(name)} stands twice, first in line {first}. "
                "Give one of them another name.",
            )
        addresses.setdefault(where, draft.line)
        names.setdefault(name.casefold(), draft.line)
        entries.append(_entry(draft, name))
    return entries


def _entry(draft: _Draft, name: str) -> HostEntry:
    target = draft.target
    if target.is_self:
        return msgspec.structs.replace(SELF, name=name, labels=draft.labels, drained=draft.drained)
    return HostEntry(
        name=name,
        source=target.source,
        address=target.shown_address,
        user=target.user,
        host=target.host,
        port=target.port,
        tls=target.tls,
        path=target.path,
        labels=draft.labels,
        drained=draft.drained,
    )


def _address(target: Target) -> str:
    """Return what makes an entry the same as another one; of an agent without its scheme."""
    return target.network_address if target.source == "xmlrpc" else target.shown_address
