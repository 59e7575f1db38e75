"""One host as people write it -> where it is reached."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from gpumon.config.document import Scalar
from gpumon.config.faults import Refused, quote
from gpumon.config.kinds import MachineName, ServerUrl
from gpumon.config.logins import LoginName
from gpumon.config.settings import PORT

Source = Literal["xmlrpc", "ssh", "nvgpu", "self", "pushed", "gpumon"]

EXPECTED = "a host such as host1, host1:9043, [::1]:8043, https://host1 or self"

_SERVERS = ("gpumon+http", "gpumon+https")
_SERVER_PORTS = {"gpumon+http": 8042, "gpumon+https": 443}
SSH_PORT = 22
NVGPU_PORT = 1080
_OTHER_KINDS: dict[str, tuple[Source, int, bool]] = {
    "ssh": ("ssh", SSH_PORT, False),
    "nvgpu": ("nvgpu", NVGPU_PORT, False),
    "nvgpu+http": ("nvgpu", NVGPU_PORT, False),
    "nvgpu+https": ("nvgpu", NVGPU_PORT, True),
}
"""Scheme -> what asks the host, its port where none is written, whether by https."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z", re.DOTALL)
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\Z")
_RANGE = re.compile(r"(?<=[A-Za-z0-9_.-])[\[{]([0-9]{1,6})(?:-|:|\.\.)([0-9]{1,6})[\]}]")
_PLAIN = re.compile(r"[A-Za-z0-9_.:/+-]*\Z")
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)+\Z")


class Target(NamedTuple):
    """Where an entry points to."""

    typed: str
    """The host as it was typed, for its name."""
    host: str
    port: int
    tls: bool
    own_port: bool
    """Whether the entry names a port."""
    source: Source = "xmlrpc"
    path: str = ""
    """Of another gpumon server: where its page lies."""
    user: str | None = None
    """Login name, where the entry has one."""

    @property
    def is_self(self) -> bool:
        return self.source == "self"

    @property
    def network_address(self) -> str:
        """The host with its port, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown_address(self) -> str:
        """The same as a person would write it: with its scheme, without a user."""
        if self.source == "pushed":
            return f"push://{self.host}"
        secure = "s" if self.tls else ""
        scheme = {
            "xmlrpc": "https://" if self.tls else "",
            "ssh": "ssh://",
            "nvgpu": f"nvgpu+http{secure}://",
            "gpumon": f"gpumon+http{secure}://",
        }[self.source]
        return f"{scheme}{self.network_address}{self.path}"


def parse_target(text: str, *, rpc_port: int, tls: bool) -> Target:
    """Take an entry apart. Raises Refused."""
    text = text.strip()
    _refuse_range(text)
    if text.lower() == "self":
        return Target("self", "", 0, False, False, "self")
    match = _SCHEME.match(text)
    if match:
        scheme, rest = match[1].lower(), match[2]
        if scheme == "push":
            return _pushed(rest)
        if scheme in _SERVERS:
            return _server(scheme, rest)
        if scheme in _OTHER_KINDS:
            return _other_kind(scheme, rest, text)
        if scheme not in ("http", "https"):
            raise Refused(quote(text), "Write http:// or https://, or neither.")
        tls = scheme == "https"
    else:
        rest = text
    if "@" in rest:
        raise Refused(quote(text), "No user or password stands here; a token goes into token_file.")
    host, port = _split(rest.rstrip("/"), text)
    host = host.removesuffix(".")
    if port is None:
        return Target(host, _connectable(host, text), rpc_port, tls, False)
    return Target(host, _connectable(host, text), _port(port, rpc_port), tls, True)


def _refuse_range(text: str) -> None:
    """Refuse "gpu-[01-10]" and its like, with what writes the hosts one by one."""
    if (found := _RANGE.search(text)) is None:
        return
    advice = "Ranges are not read here: write one host a line."
    around = text[: found.start()], text[found.end() :]
    if _PLAIN.match("".join(around)):  # it stands in a command, and no user may stand in a message
        width = len(found[1]) if found[1].startswith("0") else 1
        form = f"  - {around[0]}%0{width}g{around[1]}"
        advice += f" In a shell, seq -f '{form}' {int(found[1])} {int(found[2])} prints them."
    raise Refused(quote(text), advice)


def _pushed(name: str) -> Target:
    kind = MachineName()
    try:
        name = kind.read(Scalar(0, name))
    except Refused as refused:
        raise Refused(refused.found, expected=f"after push:// {kind.expected}") from None
    return Target(name, name.lower(), 0, False, False, "pushed")


def _server(scheme: str, rest: str) -> Target:
    """Return another gpumon server; its address may have a path."""
    kind, tls = ServerUrl(), scheme == "gpumon+https"
    try:
        url = kind.read(Scalar(0, f"{scheme.removeprefix('gpumon+')}://{rest}"))
    except Refused as refused:
        expected = kind.expected.replace("https://", "gpumon+https://")
        raise Refused(quote(f"{scheme}://{rest}"), refused.advice, expected=expected) from None
    parts = urlsplit(url)
    port = _SERVER_PORTS[scheme] if parts.port is None else parts.port
    typed = host = _connectable(parts.hostname or "", rest)
    return Target(typed, host, port, tls, parts.port is not None, "gpumon", parts.path)


def _other_kind(scheme: str, rest: str, text: str) -> Target:
    """Take an entry apart that is no agent of gpumon's. Raises Refused."""
    source, usual_port, tls = _OTHER_KINDS[scheme]
    user, at, rest = rest.rpartition("@")
    if at and source != "ssh":
        raise Refused(quote(text), "No user or password stands here: nvgpu's agents have none.")
    if ":" in user:
        raise Refused(quote(text), "No password stands here: the server logs in by ssh.key_file.")
    if at:
        try:
            user = LoginName().read(Scalar(0, user))
        except Refused:
            raise Refused(quote(text), "Before the @ stands a login name.") from None
    rest = rest.rstrip("/")
    if "/" in rest:
        raise Refused(quote(text), "Only host and port may stand here, no path.")
    typed, port = _split(rest, text)
    typed = typed.removesuffix(".")
    return Target(
        typed,
        _connectable(typed, text),
        usual_port if port is None else _port(port, usual_port),
        tls,
        port is not None,
        source,
        user=user or None,
    )


def _split(rest: str, text: str) -> tuple[str, str | None]:
    """Return host (without brackets) and port, None where none is written."""
    if rest.startswith("["):
        host, bracket, after = rest[1:].partition("]")
        if not bracket or ":" not in host or (after and not after.startswith(":")):
            raise Refused(quote(text))
        return host, after[1:] if after else None
    if rest.count(":") > 1:
        raise Refused(quote(text), "Put an IPv6 address in brackets: [::1] or [::1]:8043.")
    host, colon, port = rest.partition(":")
    return host, port if colon else None


def _connectable(host: str, text: str) -> str:
    """Return the host as it is connected to: in lower case, an IPv6 address in its short form."""
    if "%" in host:
        raise Refused(quote(text), "An address with a zone (%) can't be used here.")
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise Refused(quote(text), "That is no IPv6 address.") from None
    if _NUMBERS.match(host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise Refused(quote(text), "That is no IPv4 address.") from None
    if len(host) > 253 or not _HOST.match(host):
        raise Refused(quote(text), _advice(host))
    return host.lower()


def _advice(host: str) -> str:
    if re.search(r"[\s,;]", host):
        return 'Write one host a line, each with "- " before it.'
    if "/" in host:
        return "Only host and port may stand here, no path."
    if "[" in host or "{" in host:
        return "Brackets stand around IPv6 addresses only; write one host a line."
    if not host.isascii():
        return "Write the name in its xn-- form."
    return ""


def _port(port: str, rpc_port: int) -> int:
    short = len(port) < 10 and (port.isalnum() or not port)
    try:
        return int(PORT.read(Scalar(0, port)))
    except Refused as refused:
        raise Refused(
            refused.found,
            f'Leave ":{port}" out to use {rpc_port}.' if short else "",
            expected=PORT.expected,
            at=".port",
        ) from None
