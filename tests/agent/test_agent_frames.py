"""Frames as they come through a pipe: in any pieces, and nothing but frames."""

from __future__ import annotations

import struct

import pytest

from gpumon.agent.frames import MAX_FRAME_BYTES, FrameBuffer


def frame(whole: bytes, short: bytes) -> bytes:
    return struct.pack(">II", len(whole), len(short)) + whole + short


@pytest.mark.parametrize("size", [1, 3, 8, 9, 100])
def test_frames_come_in_any_pieces(size: int) -> None:
    buffer = FrameBuffer()
    for number in range(3):
        sent = frame(b"whole %d" % number, b"short")
        pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
        assert [buffer.feed(piece) for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
        assert buffer.feed(pieces[-1]) == (b"whole %d" % number, b"short")


def test_a_frame_too_large_to_be_one_is_refused_before_it_comes() -> None:
    with pytest.raises(ValueError, match="was announced"):
        FrameBuffer().feed(struct.pack(">II", MAX_FRAME_BYTES, 1))


def test_what_follows_a_frame_is_never_taken_for_the_next_answer() -> None:
    sent = frame(b"whole", b"short")
    with pytest.raises(ValueError, match="18 bytes follow the frame"):
        FrameBuffer().feed(2 * sent)
