"""Finds the configuration, reads it by the table of settings, lays variables and flags over it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpumon.config.document import Fields, Items, Node, Scalar, read_document
from gpumon.config.faults import Faults, Refused, sentence
from gpumon.config.file import Found, absolute, find, read_text, refuse_foreign
from gpumon.config.hosts import read_hosts
from gpumon.config.kinds import ListOf, Value
from gpumon.config.settings import SECTIONS, SETTINGS, TOP_KEYS, Setting, as_yaml, keys_of
from gpumon.config.types import (
    AgentConfig,
    Config,
    HostEntry,
    Limits,
    MetricsConfig,
    SshConfig,
    TlsConfig,
    WebConfig,
)
from gpumon.config.walk import fields_of, value_of


def load(
    path: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """Return the configuration of `path`, of GPUMON_CONFIG, ./config.yml or the system's file.

    Without any of them every default holds and this machine is the only host. `overrides` are
    values from the command line by the name of their setting ("web_port", "agent.bind"); None
    among them means that the flag was not given. They win over variables, those over the file.
    Relative paths start from the folder of the file, those of variables and flags from the
    working folder. Raises ConfigError with all faults at once.
    """
    found = find(path, environ)
    faults = Faults(found.label if found else "")
    top = fields_of(_root(found, faults), "", TOP_KEYS, faults)
    values = _file_values(top, found.path.parent if found else Path(), faults)
    values |= _variables(environ, faults)
    values |= _flags(overrides or {}, faults)
    hosts = read_hosts(
        top.get("hosts"),
        rpc_port=values.get("rpc_port", Config().rpc_port),
        tls="tls" in top,
        faults=faults,
    )
    faults.raise_if_any()
    return _build(values, path=None if found is None else found.path, hosts=hosts)


def _root(found: Found | None, faults: Faults) -> Node:
    """Return the root of the file; no file and an empty one are an empty mapping."""
    root = None
    if found is not None:
        root = read_document(read_text(found), faults)
        refuse_foreign(root, found)
    if root is None or (isinstance(root, Scalar) and root.is_nothing):
        return Fields(1, [])
    return root


def _file_values(top: Mapping[str, Node], folder: Path, faults: Faults) -> dict[str, Any]:
    nodes = {name: node for name, node in top.items() if name in SETTINGS}
    for section in SECTIONS:
        node = top.get(section)
        # A section whose keys are all commented out says nothing. But nobody writes "tls:" and
        # means to go without.
        if node is None or (isinstance(node, Scalar) and node.is_nothing and section != "tls"):
            continue
        fields = fields_of(node, section, keys_of(section), faults)
        if section == "tls" and isinstance(node, Fields):
            _refuse_half_of_tls(node, fields, faults)
        nodes |= {f"{section}.{key}": value for key, value in fields.items()}
    values: dict[str, Any] = {}
    for name, node in nodes.items():
        setting = SETTINGS[name]
        value = _value(setting, node, name, faults, _without(setting))
        if value is not None:
            values[name] = _from(folder, value)
    _refuse_labels_without_socket(nodes, values, faults)
    return values


def _refuse_labels_without_socket(
    nodes: Mapping[str, Node], values: Mapping[str, Any], faults: Faults
) -> None:
    rules = "agent.owner_rules"
    by_label = any(rule.label is not None for rule in values.get(rules, ()))
    if by_label and "agent.container_socket" not in nodes:
        refused = Refused("none", "Add container_socket: /run/docker.sock to the section agent.")
        expected = "agent.container_socket, since labels are asked of the container runtime"
        faults.at(nodes[rules].line, sentence(rules, expected, refused, ""))


def _refuse_half_of_tls(node: Fields, fields: Mapping[str, Node], faults: Faults) -> None:
    if not node.pairs:
        refused = Refused("an empty mapping", "Remove it to go without TLS.")
    elif "cert" in fields and "key" not in fields:
        refused = Refused("cert alone", "Add the line key: FILE below it.")
    elif "key" in fields and "cert" not in fields:
        refused = Refused("key alone", "Add the line cert: FILE below it.")
    else:
        return
    faults.at(node.line, sentence("tls", "cert and key together, ca, or all three", refused, ""))


def _variables(environ: Mapping[str, str], faults: Faults) -> dict[str, Any]:
    given = {
        name: (setting.variable, environ[setting.variable])
        for name, setting in SETTINGS.items()
        if setting.variable is not None and environ.get(setting.variable, "").strip()
    }
    return _spoken(given, "Unset it to do without.", faults)


def _flags(overrides: Mapping[str, object], faults: Faults) -> dict[str, Any]:
    given = {
        name: (SETTINGS[name].flag or name, str(value))
        for name, value in overrides.items()
        if value is not None
    }
    return _spoken(given, "Leave it out to do without.", faults)


def _spoken(given: Mapping[str, tuple[str, str]], instead: str, faults: Faults) -> dict[str, Any]:
    """Return the values of flags or variables: name of the setting -> (what to call it, text)."""
    values: dict[str, Any] = {}
    for name, (spoken_name, text) in given.items():
        value = _value(SETTINGS[name], Scalar(0, text), spoken_name, faults, instead)
        if value is not None:
            values[name] = _from(Path(), value)
    return values


def _value(setting: Setting, node: Node, path: str, faults: Faults, instead: str) -> Value | None:
    kind = setting.kind
    value = value_of(node, path, kind.read, faults, expected=kind.expected, instead=instead)
    if not isinstance(kind, ListOf) or not isinstance(node, Items):
        return value
    item, items = kind.item, []
    for index, member in enumerate(node.items):
        read = value_of(
            member, f"{path}[{index}]", item.read, faults, expected=item.expected, instead=instead
        )
        if read is not None:
            items.append(read)
    return items


def _from(folder: Path, value: Value) -> Value:
    """Return a path as an absolute one that starts from `folder`, anything else as it is."""
    return absolute(folder / value) if isinstance(value, Path) else value


def _without(setting: Setting) -> str:
    default = setting.default
    if default is None:
        return "Remove the line to go without."
    return f"Remove the line to use {as_yaml(default)}."


def _build(values: Mapping[str, Any], *, path: Path | None, hosts: list[HostEntry]) -> Config:
    parts: dict[str, dict[str, Any]] = {section: {} for section in ("", *SECTIONS)}
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        parts[section][key] = value
    return Config(
        path=path,
        hosts=hosts,
        tls=TlsConfig(**parts["tls"]) if parts["tls"] else None,
        ssh=SshConfig(**parts["ssh"]),
        agent=AgentConfig(**parts["agent"]),
        web=WebConfig(**parts["web"]),
        limits=Limits(**parts["limits"]),
        metrics=MetricsConfig(**parts["metrics"]),
        **parts[""],
    )
