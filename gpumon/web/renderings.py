"""Every form of every revision is rendered once and compressed once, whoever asks."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Hashable

MOST = 128
"""So many renderings of a revision are kept: the common pages, and a share of the hosts'."""


class Rendering:
    """A body with its compressed twin, which is made when somebody asks for it."""

    def __init__(self, body: bytes, content_type: str) -> None:
        self.body = body
        self.content_type = content_type
        self._zipping = threading.Lock()
        self._zipped: bytes | None = None

    @property
    def zipped(self) -> bytes:
        """The body compressed: by whoever asks first, while the others wait."""
        with self._zipping:
            if self._zipped is None:
                # A fixed time: the same body gives the same bytes.
                self._zipped = gzip.compress(self.body, compresslevel=6, mtime=0)
            return self._zipped


class Renderings:
    """The renderings of the current revision and of the one before. Any thread may ask.

    The one before is kept for requests that took it up just before it was replaced: they must not
    throw the new one out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, dict[Hashable, Rendering]] = {}
        """Revision -> its renderings, the newest revision last."""

    def get(self, revision: str, form: Hashable, render: Callable[[], Rendering]) -> Rendering:
        """Return the rendering of `form`, made by `render` the first time in this revision."""
        with self._lock:
            kept = self._kept.get(revision)
            if kept is None:
                kept = self._kept[revision] = {}
                while len(self._kept) > 2:
                    del self._kept[next(iter(self._kept))]
            found = kept.get(form)
            if found is None:
                found = render()
                if len(kept) >= MOST:
                    kept.clear()
                kept[form] = found
            return found
