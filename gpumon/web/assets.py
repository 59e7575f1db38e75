"""The files that pages need, from the package, held in memory; nothing comes from elsewhere."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from gpumon.web.renderings import Rendering

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """One file."""

    rendering: Rendering
    digest: str
    """Of its content: addresses carry it, so that a new release is never hidden by a cache."""


def load_assets() -> dict[str, Asset]:
    """Return all static files by name."""
    assets = {}
    for path in sorted(_FOLDER.iterdir()):
        if path.suffix in _TYPES:
            body = path.read_bytes()
            digest = hashlib.sha256(body).hexdigest()[:12]
            assets[path.name] = Asset(Rendering(body, _TYPES[path.suffix]), digest)
    return assets
