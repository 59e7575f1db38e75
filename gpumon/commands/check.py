"""`gpumon check`: what the configuration comes to, and everything that is wrong with it."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO
from urllib.parse import urlsplit

import msgspec

from gpumon.agent.app import binds
from gpumon.commands.agent import WITHOUT_TLS
from gpumon.commands.ways_in import load_push_tokens, token_files
from gpumon.config import Config, TlsConfig
from gpumon.config.loader import load
from gpumon.errors import ConfigError, StartError
from gpumon.extras import how_to_install
from gpumon.http.auth import Tokens, token_doubts
from gpumon.http.sockets import is_loopback, is_of_this_machine, join_address
from gpumon.http.tls import client_context, server_context
from gpumon.text import clean

HOSTS_TOLD = 20
"""So many hosts are listed for a person; --json lists all."""


class Report(msgspec.Struct, frozen=True):
    """The outcome of a check."""

    config: Config | None
    """None: it could not be read."""
    faults: list[str]
    """What keeps agent or server from starting."""
    warnings: list[str]
    """What works, and may not be what was meant."""


def run(arguments: argparse.Namespace) -> int:
    """Check the configuration of `--config`. Returns 0, or 2 when something is wrong."""
    report = examine(arguments.config)
    if arguments.json:
        sys.stdout.write(as_json(report) + "\n")
    else:
        write(report, sys.stdout, sys.stderr)
    return 2 if report.faults else 0


def examine(path: str | None, *, environ: Mapping[str, str] = os.environ) -> Report:
    """Read the configuration and the files that it names. Nothing is started, nobody asked."""
    try:
        config = load(path, environ=environ)
    except ConfigError as error:
        return Report(None, error.faults, [])
    faults: list[str] = []
    with _log_lines() as warnings:
        # What the daemons would say at their start, in the same words.
        for attempt in (_token_fault, _push_fault, _tls_fault, _ssh_fault):
            fault = attempt(config)
            if fault is not None:
                faults.append(fault)
    return Report(config, faults, [*warnings, *_doubts(config)])


def as_json(report: Report) -> str:
    """Return the report as JSON: {ok, faults, warnings, config}; paths are texts, no secret."""
    plain: dict[str, Any] = {
        "ok": not report.faults,
        "faults": report.faults,
        "warnings": report.warnings,
        "config": msgspec.to_builtins(report.config, enc_hook=str),
    }
    return json.dumps(plain, indent=2)


def write(report: Report, out: TextIO, err: TextIO) -> None:
    """Write what would be used and the warnings to `out`, the faults to `err`."""
    if report.config is not None:
        out.writelines(line + "\n" for line in _lines(report.config))
    out.writelines(f"warning: {warning}\n" for warning in report.warnings)
    out.flush()
    err.writelines(fault + "\n" for fault in report.faults)


def _lines(config: Config) -> Iterator[str]:
    agent, web = config.agent, config.web
    scheme = "https" if config.tls and config.tls.cert else "http"
    path = "none: every default holds" if config.path is None else clean(str(config.path), 4096)
    yield f"file     {path}"
    yield (
        f"page     {join_address(web.bind, config.web_port)}, "
        f'path {web.prefix or "/"}, title "{web.title}"'
    )
    yield (f"agent    {binds(config)[0][0]}, {scheme}, a sample every {agent.sample_interval:g} s")
    yield f"token    {config.token_file or 'none'}"
    yield f"tls      {_tls_words(config.tls)}"
    if any(host.source == "ssh" for host in config.hosts):
        ssh = config.ssh
        others = " unless its entry names one" if any(host.user for host in config.hosts) else ""
        yield (
            f"ssh      user {ssh.user or 'as here'}{others}, key {ssh.key_file or 'in ~/.ssh'}, "
            f"known hosts {ssh.known_hosts or 'in ~/.ssh and /etc/ssh'}"
        )
    yield f"polls    every {config.poll_interval:g} s, {config.rpc_timeout:g} s at most for a host"
    yield f"hosts    {len(config.hosts)}"
    shown = config.hosts[:HOSTS_TOLD]
    width = max((len(host.name) for host in shown), default=0)
    for host in shown:
        notes = "".join(f"  {key}={value}" for key, value in host.labels.items())
        drained = "  drained" if host.drained else ""
        address = "this machine" if host.source == "self" else host.address
        address += f"  user {host.user}" if host.user else ""
        yield f"         {host.name:<{width}}  {address}{drained}{notes}"
    if len(config.hosts) > len(shown):
        yield f"         and {len(config.hosts) - len(shown)} more; --json lists all"


def _tls_words(tls: TlsConfig | None) -> str:
    if tls is None:
        return "none"
    files = {"certificate": tls.cert, "key": tls.key, "ca": tls.ca}
    return ", ".join(f"{word} {path}" for word, path in files.items() if path is not None)


def _token_fault(config: Config) -> str | None:
    if config.token_file is None:
        return None
    try:
        Tokens.load(config.token_file)
    except StartError as error:
        return str(error)
    return None


def _push_fault(config: Config) -> str | None:
    try:
        load_push_tokens(config.web)
    except StartError as error:
        return str(error)
    if config.agent.push is not None and config.token_file is None:
        return f"agent.push: a push to {config.agent.push} needs a token. Set token_file."
    return None


def _tls_fault(config: Config) -> str | None:
    if config.tls is None:
        return None
    try:
        if config.tls.cert is not None:
            server_context(config.tls)
        elif config.tls.ca is not None:
            client_context(config.tls)
    except StartError as error:
        return str(error)
    return None


def _ssh_fault(config: Config) -> str | None:
    if not any(host.source == "ssh" for host in config.hosts):
        return None
    try:
        from gpumon.cluster.sources.build import open_logins
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("gpumon"):
            raise
        return (
            f"hosts: ssh:// entries need the library {error.name}, which is not installed. "
            f"{how_to_install('server', 'ssh')}"
        )
    try:
        logins = open_logins(config)
        for host in config.hosts:
            if logins is not None and host.source == "ssh":
                logins.user(host)
    except StartError as error:
        return str(error)
    return None


def _doubts(config: Config) -> Iterator[str]:
    agent, web, tls = config.agent, config.web, config.tls
    if not is_loopback(agent.bind):
        if agent.allow_anonymous:
            yield (
                "agent.allow_anonymous: whoever reaches port "
                f"{config.rpc_port} may read users and command lines without a token."
            )
        elif config.token_file is None:
            yield (
                "token_file: no token, so the agent answers on loopback only. "
                "Set one on every host, and on the server that asks them."
            )
    yield from _weak_tokens(config)
    yield from _foreign_binds(config)
    if config.rpc_timeout > config.poll_interval:
        yield (
            f"rpc_timeout: {config.rpc_timeout:g} s is more than poll_interval, "
            f"{config.poll_interval:g} s: a host that hangs is asked no sooner than it is given "
            f"up, and its last readings pass for fresh for "
            f"{2 * config.poll_interval + config.rpc_timeout:g} s."
        )
    if web.user_header is None:
        nobody = "without web.user_header no reader has a name. Set it to the proxy's header."
        if web.admins:
            yield f"web.admins: nobody ever is one, since {nobody}"
        if web.command_lines != "nobody":
            yield f"web.command_lines: nobody ever sees one, since {nobody}"
    if agent.container_socket is not None and not os.path.exists(agent.container_socket):
        yield (
            "agent.container_socket: not there, or not for this user to see: "
            f"{agent.container_socket}. Names and labels of containers would be missing."
        )
    if not is_loopback(web.bind):
        yield (
            f"web.bind: the page has no login, and whoever reaches {web.bind} port "
            f"{config.web_port} sees it."
        )
    for network in web.trusted_proxies:
        if network.endswith("/0"):
            yield f"web.trusted_proxies: {network} lets every caller invent where it comes from."
    push = urlsplit(agent.push or "")
    if push.scheme == "http" and not is_loopback(push.hostname or ""):
        yield f"agent.push: the token travels unencrypted to {agent.push}."
    pushed = [host.name for host in config.hosts if host.source == "pushed"]
    if pushed and not token_files(web):
        yield (
            f"web.push_token_file: none, so nobody may push, and {pushed[0]} will stay silent. "
            "Set it on the server."
        )
    if config.web_port == config.rpc_port:
        yield f"web_port and rpc_port are both {config.web_port}: they can't run on one machine."
    if tls is not None and tls.cert is None:
        yield WITHOUT_TLS
    if not config.hosts:
        yield 'hosts: none, so the page stays empty. Write "- self" for this machine.'
    yield from _open_wires(config)


def _weak_tokens(config: Config) -> Iterator[str]:
    if config.token_file is not None:
        yield from token_doubts(config.token_file, "token_file")
    for key, path in token_files(config.web).items():
        yield from token_doubts(path, key, named=True)


def _foreign_binds(config: Config) -> Iterator[str]:
    for key, what, address in (
        ("agent.bind", "the agent", config.agent.bind),
        ("web.bind", "the page", config.web.bind),
    ):
        if not is_of_this_machine(address):
            yield f"{key}: {address} is no address of this machine, so {what} can't start here."


def _open_wires(config: Config) -> Iterator[str]:
    open_hosts = [
        host.name
        for host in config.hosts
        if host.source == "xmlrpc" and not host.tls and not is_loopback(host.host)
    ]
    if config.token_file is not None and open_hosts:
        named = ", ".join(open_hosts[:3]) + (", ..." if len(open_hosts) > 3 else "")
        yield f"tls: the token travels unencrypted to {len(open_hosts)} of the hosts: {named}."


@contextmanager
def _log_lines() -> Iterator[list[str]]:
    """Collect what gpumon logs meanwhile instead of writing it to stderr."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    log, handler = logging.getLogger("gpumon"), Collect()
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
