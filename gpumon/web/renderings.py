"""Every form of every revision is made once, whoever asks: pages, and what they are made of."""

from __future__ import annotations

import gzip
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

MOST = 128
"""So many renderings of a revision are kept: the common pages, and a share of the hosts'."""

T = TypeVar("T")


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


class _Slot(Generic[T]):
    """One thing that is made by whoever asks first, while those who want the same wait."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._made: list[T] = []

    def get(self, make: Callable[[], T]) -> T:
        with self._making:
            if not self._made:
                self._made.append(make())
            return self._made[0]


class PerRevision(Generic[T]):
    """Things of the current revision and of the one before, at most `most` of each.

    The one before is kept for requests that took it up just before it was replaced: they must not
    throw the new one out. What was asked for longest ago gives way. Any thread may ask; one that
    wants something that is there never waits for one that makes something else.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[str, OrderedDict[Hashable, _Slot[T]]] = {}
        """Revision -> its things, the newest revision last."""

    def get(self, revision: str, form: Hashable, make: Callable[[], T]) -> T:
        """Return the thing of `form`, made by `make` the first time in this revision."""
        with self._lock:
            kept = self._kept.get(revision)
            if kept is None:
                kept = self._kept[revision] = OrderedDict()
                while len(self._kept) > 2:
                    del self._kept[next(iter(self._kept))]
            slot = kept.get(form)
            if slot is None:
                slot = kept[form] = _Slot()
                if len(kept) > self._most:
                    kept.popitem(last=False)
            else:
                kept.move_to_end(form)
        return slot.get(make)

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))
