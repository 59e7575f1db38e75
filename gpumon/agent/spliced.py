"""Ready bytes with one small part that changes with each answer: the age of the sample.

Most of an answer stays the same for as long as the sample does. So it is kept, also compressed, and
an answer is put together from a head, the part, and a tail, without encoding or compressing any of
it again.
"""

from __future__ import annotations

import struct
import zlib

_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW = -zlib.MAX_WBITS


class Spliced:
    """A head and a tail, and on demand their compressed forms. For any thread."""

    def __init__(self, head: bytes, tail: bytes) -> None:
        self._head = head
        self._tail = tail
        self._compressed: tuple[bytes, bytes] | None = None

    @classmethod
    def at(cls, whole: bytes, placeholder: bytes) -> Spliced:
        """Cut `whole` at the first `placeholder`, where the part will stand."""
        head, found, tail = whole.partition(placeholder)
        if not found:
            raise ValueError(f"{placeholder!r} does not stand in the text")
        return cls(head, tail)

    def around(self, head: bytes, tail: bytes) -> Spliced:
        """Return this with more text before and after."""
        return Spliced(head + self._head, self._tail + tail)

    def plain(self, part: bytes) -> bytes:
        """Return head, part and tail."""
        return self._head + part + self._tail

    def gzip(self, part: bytes) -> bytes:
        """Return the same as a gzip file; `part` stands in it uncompressed.

        A deflate stream may be cut at byte borders: after a full flush nothing refers back.
        """
        if self._compressed is None:
            first, last = zlib.compressobj(6, wbits=_RAW), zlib.compressobj(6, wbits=_RAW)
            self._compressed = (
                first.compress(self._head) + first.flush(zlib.Z_FULL_FLUSH),
                last.compress(self._tail) + last.flush(),
            )
        head, tail = self._compressed
        stored = struct.pack("<BHH", 0, len(part), len(part) ^ 0xFFFF) + part
        check = zlib.crc32(self._tail, zlib.crc32(part, zlib.crc32(self._head)))
        size = len(self._head) + len(part) + len(self._tail)
        return _GZIP_HEAD + head + stored + tail + struct.pack("<II", check, size & 0xFFFFFFFF)
