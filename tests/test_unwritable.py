"""What is said about a file that can't be written fits the reason."""

from __future__ import annotations

import errno
import os

import pytest

from gpumon.unwritable import why_unwritable


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "Make room on its disk"),
        (errno.ENOENT, "Make its folder first"),
        (errno.EACCES, "The user that runs gpumon must be allowed to write in its folder"),
        (errno.EROFS, "Its file system is mounted read-only, or the service may not write there"),
    ],
)
def test_the_cure_fits_the_reason(number, cure):
    error = OSError(number, os.strerror(number))
    assert why_unwritable(error) == f"{os.strerror(number)}. {cure}"


def test_of_a_reason_that_nobody_thought_of_no_cure_is_made_up():
    assert why_unwritable(OSError(errno.EIO, "Input/output error")) == "Input/output error"
    assert why_unwritable(OSError()) == "OSError"


def test_a_real_full_disk_is_told_as_one():
    with pytest.raises(OSError, match="No space left") as caught, open("/dev/full", "w") as file:
        file.write("x" * 100_000)
    assert why_unwritable(caught.value).endswith(". Make room on its disk")
