"""The wire with certificates of `gpumon certs`: who is refused, by whom, and what is said of it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import logging
from pathlib import Path

import pytest
from agent_examples import busy, host, latest
from cluster_tools import BROKEN_OFF, a_config, an_entry
from http_serving import eventually, running

from gpumon.agent.app import make_app
from gpumon.certs.authority import Limits, Names
from gpumon.certs.folder import CertsFolder
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.config import TlsConfig
from gpumon.errors import SourceError
from gpumon.http.auth import Tokens
from gpumon.http.server import Site

NOW = dt.datetime.now(dt.timezone.utc)
LONG_AGO = NOW - dt.timedelta(days=900)
TOKEN = "the-token-of-this-test"

pytestmark = BROKEN_OFF


@pytest.fixture
def folder(tmp_path: Path) -> CertsFolder:
    return an_authority(tmp_path / "ca")


def an_authority(path: Path) -> CertsFolder:
    folder = CertsFolder(path)
    folder.init("an authority", Limits(), LONG_AGO, 3650, force=False)
    return folder


def tls(folder: CertsFolder, name: str, *, now: dt.datetime = NOW, ip: str | None = None):
    """Return a machine's files, made for its name (and an address)."""
    ips = () if ip is None else (ipaddress.ip_address(ip),)
    made = folder.add(Names((name,), ips), now, 730, force=False)
    return TlsConfig(cert=made / "cert.pem", key=made / "key.pem", ca=made / "ca.pem")


def polled(tmp_path: Path, agent: TlsConfig, server: TlsConfig, token: str = TOKEN) -> Reading:
    """Let a server with these files poll an agent with those, three times."""
    tokens = tmp_path / "token"
    tokens.write_text(token)
    tokens.chmod(0o600)
    app = make_app(lambda: latest(host(busy(0))), Tokens([TOKEN]))
    site = Site(name="agent", app=app, binds=["127.0.0.1:0"], tls=agent)

    async def ask(port: int) -> Reading:
        entry = an_entry("gpu-01", port, tls=True)
        connections = Connections(a_config(entry, tls=server, token_file=tokens))
        try:
            source = XmlRpcSource(entry, connections)
            for _ in range(2):
                with contextlib.suppress(SourceError):
                    await asyncio.wait_for(source.poll(), 5)
            return await asyncio.wait_for(source.poll(), 5)
        finally:
            await connections.close()

    with running(site) as [port]:
        return asyncio.run(ask(port))


def refused(tmp_path: Path, agent: TlsConfig, server: TlsConfig, token: str = TOKEN) -> SourceError:
    with pytest.raises(SourceError) as caught:
        polled(tmp_path, agent, server, token)
    return caught.value


def agent_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    def lines() -> list[str]:
        return [m for m in caplog.messages if m.startswith("agent: 127.0.0.1 was refused")]

    eventually(lambda: bool(lines()), 2.0)
    return lines()


def test_both_sides_of_one_authority_understand_each_other(tmp_path, folder, caplog):
    reading = polled(tmp_path, tls(folder, "gpu-01", ip="127.0.0.1"), tls(folder, "server"))
    assert reading.summary.gpu_count == 1
    assert "refused" not in caplog.text


def test_a_wrong_token_is_one_line_on_the_agent_and_its_word_on_the_server(
    tmp_path, folder, caplog
):
    agent, server = tls(folder, "gpu-01", ip="127.0.0.1"), tls(folder, "server")
    error = refused(tmp_path, agent, server, token="another-token")
    assert error.kind == "wrong token"
    assert agent_lines(caplog) == ["agent: 127.0.0.1 was refused: wrong token"]


def test_a_server_whose_certificate_has_expired_is_refused(tmp_path, folder, caplog):
    agent = tls(folder, "gpu-01", ip="127.0.0.1")
    error = refused(tmp_path, agent, tls(folder, "server", now=LONG_AGO))
    assert error.kind == "tls"
    assert agent_lines(caplog) == [
        "agent: 127.0.0.1 was refused: tls: its certificate is not accepted "
        "(certificate has expired)"
    ]


def test_a_server_of_another_authority_is_refused(tmp_path, folder, caplog):
    stranger = tls(an_authority(tmp_path / "other"), "server")
    mixed = TlsConfig(cert=stranger.cert, key=stranger.key, ca=folder.path / "ca.pem")
    error = refused(tmp_path, tls(folder, "gpu-01", ip="127.0.0.1"), mixed)
    assert error.kind == "tls"
    [line] = agent_lines(caplog)
    assert "its certificate is not accepted (" in line


def test_a_server_without_a_certificate_is_refused(tmp_path, folder, caplog):
    error = refused(
        tmp_path,
        tls(folder, "gpu-01", ip="127.0.0.1"),
        TlsConfig(ca=folder.path / "ca.pem"),
    )
    assert error.kind == "tls"
    assert "Then set tls.cert and tls.key" in str(error)
    assert agent_lines(caplog) == [
        "agent: 127.0.0.1 was refused: tls: it showed no certificate, and tls.ca asks for one"
    ]


def test_an_agent_whose_certificate_has_expired_is_refused(tmp_path, folder):
    agent = tls(folder, "gpu-01", now=LONG_AGO, ip="127.0.0.1")
    error = refused(tmp_path, agent, tls(folder, "server"))
    assert error.kind == "tls"
    assert "(certificate has expired)" in str(error)


def test_an_agent_of_another_authority_is_refused(tmp_path, folder):
    agent = tls(an_authority(tmp_path / "other"), "gpu-01", ip="127.0.0.1")
    error = refused(tmp_path, agent, tls(folder, "server"))
    assert error.kind == "tls"
    assert "Set tls.ca to the authority that signed it" in str(error)


def test_an_agent_under_another_name_is_refused(tmp_path, folder):
    error = refused(tmp_path, tls(folder, "gpu-02", ip="127.0.0.2"), tls(folder, "server"))
    assert error.kind == "tls"
    assert "use the name it is for" in str(error)


def test_a_client_that_speaks_no_tls_is_one_line_however_often_it_comes(tmp_path, folder, caplog):
    caplog.set_level(logging.INFO)
    app = make_app(lambda: latest(host(busy(0))), Tokens([TOKEN]))
    site = Site(name="agent", app=app, binds=["127.0.0.1:0"], tls=tls(folder, "gpu-01"))

    async def knock(port: int) -> None:
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            assert b"HTTP" not in await asyncio.wait_for(reader.read(), 5)
            writer.close()

    with running(site) as [port]:
        asyncio.run(knock(port))
    assert agent_lines(caplog) == ["agent: 127.0.0.1 was refused: tls: it does not speak TLS"]
