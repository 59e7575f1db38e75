"""Agents asked over TLS: whom we believe, what we show, and what is said when it fails."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from certificates import Issued, issue
from cluster_tools import (
    BROKEN_OFF,
    Agent,
    Behaviour,
    a_config,
    a_gpu,
    a_snapshot,
    an_entry,
    http,
    listening,
)

from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.config import TlsConfig
from gpumon.errors import SourceError, StartError
from gpumon.http.tls import client_context, server_context

SNAPSHOT = a_snapshot(a_gpu())


@pytest.fixture
def authority(tmp_path: Path) -> Issued:
    return issue(tmp_path, "authority")


@pytest.fixture
def host(tmp_path: Path, authority: Issued) -> Issued:
    return issue(tmp_path, "host", authority)


def polled(
    tls: TlsConfig | None,
    *,
    server: ssl.SSLContext | None,
    https: bool = True,
    behave: Behaviour | None = None,
) -> Reading:
    async def run() -> Reading:
        async with listening(behave or Agent(SNAPSHOT), tls=server) as port:
            entry = an_entry("gpu-01", port, tls=https)
            connections = Connections(a_config(entry, tls=tls))
            try:
                return await asyncio.wait_for(XmlRpcSource(entry, connections).poll(), 5)
            finally:
                await connections.close()

    return asyncio.run(run())


def failure(tls: TlsConfig | None, **how: object) -> SourceError:
    with pytest.raises(SourceError) as caught:
        polled(tls, **how)
    return caught.value


def test_an_agent_whose_certificate_the_authority_signed_is_believed(authority, host):
    server = server_context(TlsConfig(cert=host.cert, key=host.key))
    assert polled(TlsConfig(ca=authority.cert), server=server).detail() == SNAPSHOT


def test_an_agent_that_asks_for_a_certificate_gets_ours(tmp_path, authority, host):
    ours = issue(tmp_path, "server", authority)
    server = server_context(TlsConfig(cert=host.cert, key=host.key, ca=authority.cert))
    tls = TlsConfig(cert=ours.cert, key=ours.key, ca=authority.cert)
    assert polled(tls, server=server).detail() == SNAPSHOT


def test_an_unknown_certificate_is_refused_and_says_what_to_set(host):
    error = failure(None, server=server_context(TlsConfig(cert=host.cert, key=host.key)))
    assert error.kind == "tls"
    assert "the certificate of https://127.0.0.1:" in str(error)
    assert "Set tls.ca" in str(error)


@BROKEN_OFF
def test_an_agent_that_misses_our_certificate_says_so(authority, host):
    server = server_context(TlsConfig(cert=host.cert, key=host.key, ca=authority.cert))
    error = failure(TlsConfig(ca=authority.cert), server=server)
    assert error.kind in ("tls", "bad answer")  # the alert may be lost with the connection
    assert "Then set tls.cert and tls.key" in str(error)


def test_an_agent_without_tls_behind_https_is_named():
    async def plain(reader, writer):
        await reader.read(10)
        writer.write(http(b"not TLS", "400 Bad Request"))

    error = failure(None, server=None, behave=plain)
    assert error.kind == "tls"
    assert "write its entry in hosts without https://" in str(error)


def test_an_agent_that_hangs_up_on_the_handshake_is_named():
    async def closing(reader, writer):
        await reader.read(1000)

    assert failure(None, server=None, behave=closing).kind == "tls"


def test_an_agent_with_tls_behind_plain_http_is_named(host):
    server = server_context(TlsConfig(cert=host.cert, key=host.key))
    error = failure(None, server=server, https=False)
    assert error.kind == "bad answer"
    assert str(error).endswith(("write https:// in hosts", "must begin with https://"))


@pytest.mark.parametrize("what", ["ca", "cert"])
def test_certificates_that_can_not_be_used_stop_the_start(tmp_path, what):
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for path in (broken, tmp_path / "missing.pem"):
        with pytest.raises(StartError, match=rf"tls\.{what}: .*{path.name}"):
            client_context(TlsConfig(**{what: path}))
