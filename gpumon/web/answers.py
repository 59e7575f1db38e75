"""HTTP answers: the headers that all of them carry, validators and compression."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import bottle

from gpumon.web.renderings import Rendering

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}

REVALIDATE = "no-cache"
PRIVATE = "private, no-cache"
"""For what depends on who reads."""
FOR_A_YEAR = "public, max-age=31536000, immutable"
NEVER_STORED = "no-store"


def answer(
    body: bytes,
    content_type: str,
    *,
    status: int = 200,
    cache: str = NEVER_STORED,
    headers: Mapping[str, str] | None = None,
) -> bottle.HTTPResponse:
    """Return a complete answer. Nothing in it comes from the request's Host or X-Forwarded-*."""
    complete = {
        **SECURITY_HEADERS,
        "Content-Type": content_type,
        "Content-Length": str(len(body)),
        "Cache-Control": cache,
        **(headers or {}),
    }
    return bottle.HTTPResponse(body=body, status=status, headers=complete)


def validated(
    rendering: Rendering,
    tag: str,
    *,
    cache: str = REVALIDATE,
    headers: Mapping[str, str] | None = None,
) -> bottle.HTTPResponse:
    """Return `rendering`, compressed where the client accepts it, or 304 where it has it already.

    `tag` names the content; the ETag adds the encoding, since other bytes need another tag.
    """
    zipped = accepts_gzip(bottle.request.get_header("Accept-Encoding", ""))
    etag = f'"{quote(tag, safe="")}{"-gzip" if zipped else ""}"'
    common = {"ETag": etag, "Vary": "Accept-Encoding", **(headers or {})}
    if _has(bottle.request.get_header("If-None-Match", ""), etag):
        return answer(b"", rendering.content_type, status=304, cache=cache, headers=common)
    if zipped:
        common["Content-Encoding"] = "gzip"
    body = rendering.zipped if zipped else rendering.body
    return answer(body, rendering.content_type, cache=cache, headers=common)


def accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip."""
    for part in header.lower().split(","):
        coding, _, parameters = part.partition(";")
        if coding.strip() in ("gzip", "x-gzip"):
            return parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def wanted(accept: str) -> str:
    """Return HTML, JSON or TEXT for an Accept header: browsers name text/html, curl does not."""
    named = {part.partition(";")[0].strip() for part in accept.lower().split(",")}
    if "text/html" in named:
        return HTML
    return JSON if "application/json" in named else TEXT


def _has(if_none_match: str, etag: str) -> bool:
    """Return whether the client's list of tags holds `etag`; a proxy may have weakened it."""
    tags = (part.strip().removeprefix("W/") for part in if_none_match.split(","))
    return any(tag in (etag, "*") for tag in tags)
