"""A name as a part of an address of the page: for its own links, and for servers that read it."""

from __future__ import annotations

from urllib.parse import quote


def segment(name: str) -> str:
    """Return `name` as one segment of an address, whatever is in it.

    `gpumon.web.links.name_of` gives it back.

    A server hands over a decoded path, and browsers and proxies resolve "..", so what would be
    taken for structure there is encoded twice: "/", "%", names of dots alone, and an ending
    ".json", which asks for the JSON twin.
    """
    once = name.replace("%", "%25").replace("/", "%2F")
    if name in (".", "..") or name.endswith(".json"):
        once = once.replace(".", "%2E")
    return quote(once, safe="", errors="replace")
