"""The sampler's answers as they come through its pipe: bytes to whole frames."""

from __future__ import annotations

import struct

REQUEST = b"s\n"
MAX_FRAME_BYTES = 32 * 1024 * 1024
READ_BYTES = 64 * 1024

_HEADER = struct.Struct(">II")


class FrameBuffer:
    """What has come of a frame so far."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Take in what was read; return snapshot and summary as JSON once both are whole.

        Raises ValueError where a frame is announced that is too large to be one, and where more
        follows: it would be taken for the answer to the next request.
        """
        self._data += data
        if len(self._data) < _HEADER.size:
            return None
        whole, short = _HEADER.unpack_from(self._data)
        if whole + short > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {whole + short} bytes was announced")
        middle, end = _HEADER.size + whole, _HEADER.size + whole + short
        if len(self._data) < end:
            return None
        if len(self._data) > end:
            raise ValueError(f"{len(self._data) - end} bytes follow the frame")
        frame = bytes(self._data)
        self._data.clear()
        return frame[_HEADER.size : middle], frame[middle:]
