"""Every form of every revision is rendered once and compressed once, whoever asks."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Hashable
from functools import cached_property

MOST = 128
"""So many renderings of a revision are kept: the common pages, and a share of the hosts'."""


class Rendering:
    """A body with its compressed twin, which is made when somebody asks for it."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self.body = body
        self.content_type = content_type

    @cached_property
    def zipped(self) -> bytes:
        # A fixed time: the same body gives the same bytes.
        return gzip.compress(self.body, compresslevel=6, mtime=0)


class Renderings:
    """The renderings of the current revision. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._revision: str | None = None
        self._kept: dict[Hashable, Rendering] = {}

    def get(self, revision: str, form: Hashable, render: Callable[[], Rendering]) -> Rendering:
        """Return the rendering of `form`, made by `render` the first time in this revision."""
        with self._lock:
            if revision != self._revision:
                self._revision = revision
                self._kept = {}
            found = self._kept.get(form)
            if found is None:
                found = render()
                if len(self._kept) >= MOST:
                    self._kept.clear()
                self._kept[form] = found
            return found
