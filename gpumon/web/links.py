"""Addresses inside the site. All are relative, so that any prefix of any proxy works."""

from __future__ import annotations

from urllib.parse import quote, unquote


def root_of(path: str) -> str:
    """Return the relative address of the front page as seen from `path` ("/host/gpu-1")."""
    return "../" * (path.count("/") - 1) or "./"


def segment(name: str) -> str:
    """Return `name` as one segment of an address, whatever is in it; `name_of` gives it back.

    A server hands over a decoded path, and browsers and proxies resolve "..", so what would be
    taken for structure there is encoded twice: "/", "%", names of dots alone, and an ending
    ".json", which asks for the JSON twin.
    """
    once = name.replace("%", "%25").replace("/", "%2F")
    if name in (".", "..") or name.endswith(".json"):
        once = once.replace(".", "%2E")
    return quote(once, safe="", errors="replace")


def name_of(decoded: str) -> str:
    """Return the name in a segment of a path that the server has decoded once."""
    return unquote(decoded)


def without_suffix(decoded: str) -> tuple[str, bool]:
    """Return a decoded segment without ".json", and whether it asked so for the JSON twin."""
    return decoded.removesuffix(".json"), decoded.endswith(".json")
