"""The page as readers get it, through whatever proxy stands in front of it (`--url`)."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from gpumon.commands.doctor.finding import Finding, fault, ok, warning
from gpumon.http.sockets import is_loopback
from gpumon.text import clean

SECONDS = 5.0
NAME = "proxy"


def proxy(url: str) -> Iterator[Finding]:
    """Ask for the page at `url`, as somebody without a login."""
    parts = _address(url)
    if parts is None:
        yield fault(
            NAME, "--url is no address of a page", "Write it as in a browser: https://gpus.lab.org/"
        )
        return
    if "@" in parts.netloc:
        yield fault(
            NAME,
            "--url holds a login, which every user of this machine can read in the process list",
            "Leave it out, and change the password",
        )
        return
    shown = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
    try:
        status, headers, body = _get(parts, "healthz")
    except ssl.SSLError as error:
        words = getattr(error, "verify_message", None) or error.reason or str(error)
        yield fault(
            NAME, f"{shown}: TLS fails ({clean(str(words), 80)})", "Look at the proxy's certificate"
        )
        return
    except TimeoutError:
        yield fault(NAME, f"{shown} does not answer within {SECONDS:g} s", "Is the proxy up?")
        return
    except (OSError, http.client.HTTPException) as error:
        words = clean(str(error) or type(error).__name__, 100)
        yield fault(NAME, f"{shown} can't be asked ({words})", "Is the proxy up, the name right?")
        return
    yield from _judged(parts, shown, status, headers, body)


def _address(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def _judged(
    parts: SplitResult, shown: str, status: int, headers: http.client.HTTPMessage, body: bytes
) -> Iterator[Finding]:
    if status == 401:
        yield ok(NAME, f"{shown} asks for a login; what lies behind it was not looked at")
        return
    if 300 <= status < 400:
        target = clean(headers.get("Location", ""), 200)
        yield warning(NAME, f"{shown} leads on to {target}", "Ask for that address instead")
        return
    if status == 421:
        yield fault(
            NAME,
            f"the page does not go by the name {parts.hostname}",
            "Add the name to web.hostnames, or let the proxy send the one that stands there",
        )
        return
    if status != 200 or not _is_health(body):
        yield fault(
            NAME,
            f"{shown} gives no page of gpumon (HTTP status {status})",
            "Does the proxy pass on to web_port, and under which path? See web.prefix",
        )
        return
    yield ok(NAME, f"{shown} leads to the page")
    yield from _headers(parts, shown)


def _headers(parts: SplitResult, shown: str) -> Iterator[Finding]:
    status, headers, _ = _get(parts, "status.json")
    if status == 200 and headers.get("Access-Control-Allow-Origin") is not None:
        yield fault(
            NAME,
            "the proxy opens the page to scripts of other sites (Access-Control-Allow-Origin)",
            "Take that header out of the proxy's configuration",
        )
    lost = [
        name
        for name in ("Content-Security-Policy", "X-Content-Type-Options", "ETag")
        if headers.get(name) is None
    ]
    if status == 200 and lost:
        yield warning(
            NAME,
            f"the proxy drops {', '.join(lost)}",
            "Let it pass on the page's headers: see docs/reverse-proxy.md",
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        yield warning(
            NAME,
            f"{shown} is not encrypted: logins and names of users can be read on the way",
            "Serve it by https",
        )


def _is_health(body: bytes) -> bool:
    try:
        found = json.loads(body)
    except ValueError:
        return False
    return isinstance(found, dict) and "hosts_fresh" in found


def _get(parts: SplitResult, page: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    host, path = parts.hostname or "", f"{parts.path.rstrip('/')}/{page}"
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, parts.port, timeout=SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=SECONDS)
    headers = {"Accept": "application/json"}
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.msg, response.read(1024 * 1024)
    finally:
        connection.close()
