"""What answers on the ports of agent and page on this machine."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpumon.agent.app import binds
from gpumon.commands.doctor.finding import Finding, fault, ok, warning
from gpumon.config import Config, TlsConfig
from gpumon.errors import SetupError
from gpumon.http.auth import Tokens
from gpumon.text import clean
from gpumon.version import __version__

SECONDS = 3.0
MOST_BYTES = 32 * 1024 * 1024


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the JSON object in it; {} where there is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def agent(config: Config, *, needed: bool) -> Iterator[Finding]:
    """Ask this machine's agent how it is. `needed`: it is a fault when there is none."""
    name, tls = "agent", config.tls if config.tls and config.tls.cert else None
    [address] = binds(config)[0]
    host, _, port = address.rpartition(":")
    answer = yield from _asked(name, _reachable(host), int(port), "/healthz", tls, needed)
    if answer is None:
        return
    health = answer.json()
    if "sample_age_seconds" not in health:
        yield _somebody_else(name, port, "rpc_port")
        return
    age = health["sample_age_seconds"]
    told = "has no sample yet" if age is None else f"its sample is {age:g} s old"
    if health.get("ok") is True:
        yield ok(name, f"answers on port {port}, {told}")
    else:
        yield fault(name, f"answers on port {port}, but {told}", "See: journalctl -u gpumon-agent")
    yield from _agents_version(config, _reachable(host), int(port), tls)


def _agents_version(
    config: Config, host: str, port: int, tls: TlsConfig | None
) -> Iterator[Finding]:
    headers = {}
    if config.token_file is not None:
        try:
            headers["Authorization"] = f"Bearer {Tokens.load(config.token_file).first}"
        except SetupError:
            return  # the configuration's line says why
    answer = _get(host, port, "/snapshot.json", tls, headers)
    if answer.status == 401:
        yield fault(
            "agent",
            "it does not accept the first token of token_file",
            "It was started with another file, or before the last change: restart it",
        )
    elif answer.status == 200:
        running = clean(str(answer.json().get("agent_version")), 40)
        if running != __version__:
            yield warning(
                "agent", f"version {running} runs, {__version__} is installed", "Restart it"
            )


def page(config: Config, *, needed: bool) -> Iterator[Finding]:
    """Ask this machine's page how it is. `needed`: it is a fault when there is none."""
    name, host, port = "page", _reachable(config.web.bind), config.web_port
    answer = yield from _asked(name, host, port, "/healthz", None, needed)
    if answer is None:
        return
    health = answer.json()
    if "hosts_fresh" not in health:
        yield _somebody_else(name, str(port), "web_port")
        return
    running = clean(str(health.get("version")), 40)
    yield ok(
        name, f"answers on port {port}, {health['hosts_fresh']} of {health['hosts']} hosts fresh"
    )
    if running != __version__:
        yield warning(name, f"version {running} runs, {__version__} is installed", "Restart it")


def _asked(
    name: str, host: str, port: int, path: str, tls: TlsConfig | None, needed: bool
) -> Generator[Finding, None, Answer | None]:
    """Yield why there is no answer; return the answer where there is one."""
    try:
        return _get(host, port, path, tls, {})
    except ConnectionRefusedError:
        make = fault if needed else warning
        yield make(
            name,
            f"nothing listens on {host} port {port}",
            f"Start it: systemctl start gpumon-{'agent' if name == 'agent' else 'web'}",
        )
    except ssl.SSLError as error:
        words = clean((error.reason or str(error)).replace("_", " ").lower(), 80)
        yield fault(
            name,
            f"port {port}: TLS fails ({words})",
            "Was it restarted after the last change of its certificate or of tls?",
        )
    except TimeoutError:
        yield fault(name, f"port {port} does not answer within {SECONDS:g} s", "Restart it")
    except (OSError, http.client.HTTPException) as error:
        words = clean(f"{type(error).__name__}: {error}", 120)
        yield fault(name, f"port {port} gives no answer ({words})", "See its log: journalctl -e")
    return None


def _somebody_else(name: str, port: str, key: str) -> Finding:
    return fault(
        name,
        f"something else than gpumon answers on port {port}",
        f"Find it with: ss -ltnp 'sport = :{port}'. Stop it, or set another {key}",
    )


def _get(host: str, port: int, path: str, tls: TlsConfig | None, headers: dict[str, str]) -> Answer:
    """Ask once. The name in the certificate is not looked at: this is our own machine."""
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    else:
        connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=_own(tls))
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.read(MOST_BYTES))
    finally:
        connection.close()


def _own(tls: TlsConfig) -> ssl.SSLContext:
    assert tls.cert is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    anchor: Path = tls.ca or tls.cert
    context.load_verify_locations(anchor)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_cert_chain(tls.cert, tls.key or tls.cert, password=lambda: "")
    return context


def _reachable(bind: str) -> str:
    """Return where to call a daemon that listens on `bind`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind.strip("[]"), bind.strip("[]"))  # noqa: S104
