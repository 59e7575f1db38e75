"""Addresses inside the site. All are relative, so that any prefix of any proxy works."""

from __future__ import annotations

from urllib.parse import unquote

from gpumon.cluster.links import segment

__all__ = ["name_of", "root_of", "segment", "without_suffix"]


def root_of(path: str) -> str:
    """Return the relative address of the front page as seen from `path` ("/host/gpu-1")."""
    return "../" * (path.count("/") - 1) or "./"


def name_of(decoded: str) -> str:
    """Return the name in a segment of a path that the server has decoded once."""
    return unquote(decoded)


def without_suffix(decoded: str) -> tuple[str, bool]:
    """Return a decoded segment without ".json", and whether it asked so for the JSON twin."""
    return decoded.removesuffix(".json"), decoded.endswith(".json")
