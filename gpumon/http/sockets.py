"""Listening sockets, opened before anything is served, so that what is wrong becomes a sentence."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from gpumon.errors import StartError

BACKLOG = 128
"""Connections that the kernel keeps for us while the loop is busy, and that asyncio takes at once:
before any of them can be turned away, so there must be file descriptors for them."""

PORT_KEYS = {"agent": "rpc_port", "web": "web_port"}
"""Where config.yml holds the port of a site, by the site's name."""


def join_address(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    host = host.strip("[]")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether an address, in brackets or not, or "localhost" leads to this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_of_this_machine(host: str) -> bool:
    """Return whether this machine has the address, as far as can be said without listening on it.

    `host` is an IP address, in brackets or not, or "localhost".
    """
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True  # localhost
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def parse_bind(bind: str) -> tuple[str, int]:
    """Return host and port of "127.0.0.1:8043", "[::1]:8043" or "name:8043".

    Raises StartError for anything else; an IPv6 address needs its brackets.
    """
    host, colon, port = bind.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if (
        not colon
        or not host.strip("[]")
        or (":" in host and not bracketed)
        or not (port.isascii() and port.isdigit() and int(port) < 65536)
    ):
        raise StartError(
            f"{bind!r} is no address to listen on: expected HOST:PORT, such as 127.0.0.1:8043, "
            "0.0.0.0:8043 or [::1]:8043"
        )
    return host.strip("[]"), int(port)


def open_listeners(site: str, binds: list[str]) -> list[socket.socket]:
    """Return one or more listening sockets for each of `binds` ("host:port"; port 0: any free one).

    `site` names who wants them ("agent", "web") in the sentences. Raises StartError, with nothing
    left open, when one of them can't be had.
    """
    targets = [(host, port, _resolve(site, host)) for host, port in map(parse_bind, binds)]
    has_ipv4 = any(family == socket.AF_INET for *_, found in targets for family, _ in found)
    opened: list[socket.socket] = []
    try:
        for host, port, found in targets:
            opened += _open_name(site, host, port, found, ipv6_only=has_ipv4)
    except BaseException:
        for listener in opened:
            listener.close()
        raise
    return opened


def _resolve(site: str, host: str) -> list[tuple[int, str]]:
    """Return family and address for each address of `host` on this machine."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise StartError(
            f"the {site} can't listen on {host!r}: the name leads to no address ({error}); "
            "write an IP address of this machine instead"
        ) from error
    return list(dict.fromkeys((int(family), str(target[0])) for family, _, _, _, target in found))


def _open_name(
    site: str, host: str, port: int, found: list[tuple[int, str]], *, ipv6_only: bool
) -> list[socket.socket]:
    """Listen on every address of one name; "localhost" may do with one of its two."""
    opened: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in found:
        try:
            listener = _listen(family, address, port, ipv6_only=ipv6_only)
        except OSError as error:
            if len(found) > 1 and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                missing = error
                continue
            for earlier in opened:
                earlier.close()
            raise StartError(_sentence(site, host, address, port, error)) from error
        opened.append(listener)
        port = listener.getsockname()[1]  # port 0: the same free one for all addresses of the name
    if not opened and missing is not None:
        raise StartError(_sentence(site, host, host, port, missing)) from missing
    return opened


def _listen(family: int, address: str, port: int, *, ipv6_only: bool) -> socket.socket:
    # With the protocol named, asyncio sets TCP_NODELAY on what it accepts; without, each answer on
    # a kept connection waits 40 ms for the client's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # "[::]" alone takes IPv4 as well; beside an IPv4 address it would be in its way.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(ipv6_only))
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _sentence(site: str, host: str, address: str, port: int, error: OSError) -> str:
    key = PORT_KEYS.get(site)
    other = f"set {key} in config.yml to another port" if key else "choose another port"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is in use on {address} by {_who_listens(port)}: "
            f"stop that one, or {other} for the {site}"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"the {site} may not listen on port {port} of {address} (permission denied): ports "
            f"below 1024 need root or CAP_NET_BIND_SERVICE; {other}"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"the {site} can't listen on {host}: this machine has no such address; write one of "
            "its own, 127.0.0.1 for this machine alone, or 0.0.0.0 for all of them"
        )
    if error.errno == errno.EAFNOSUPPORT:
        kind = "IPv6" if ":" in address else "this kind of address"
        return f"the {site} can't listen on {host}: {kind} is switched off on this machine"
    return f"the {site} can't listen on {join_address(address, port)}: {error.strerror or error}"


def _who_listens(port: int) -> str:
    """Name the process that has `port`, as far as this user may see it."""
    import psutil  # only here: 5 MB that a running agent does without

    try:
        for connection in psutil.net_connections(kind="tcp"):
            listening = connection.status == psutil.CONN_LISTEN
            if listening and tuple(connection.laddr)[1:] == (port,) and connection.pid:
                if connection.pid == os.getpid():
                    return "this process itself (web_port and rpc_port must differ)"
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except (psutil.Error, OSError):
        pass  # the sentence stands without it
    return f"another process (as root, `ss -ltnp 'sport = :{port}'` tells which)"
