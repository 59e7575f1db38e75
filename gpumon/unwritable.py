"""What to do about a file that can't be written: another thing for each reason."""

from __future__ import annotations

import errno

_CURES = {
    errno.ENOSPC: "Make room on its disk",
    errno.EDQUOT: "Make room within the user's quota there",
    errno.ENOENT: "Make its folder first",
    errno.ENOTDIR: "What should be its folder is none: correct the path",
    errno.EISDIR: "A folder has that name: choose another",
    errno.EACCES: "The user that runs gpumon must be allowed to write in its folder",
    errno.EPERM: "The user that runs gpumon must be allowed to write in its folder",
    errno.EROFS: "Its file system is mounted read-only, or the service may not write there",
    errno.ENAMETOOLONG: "Choose a shorter name",
}


def why_unwritable(error: OSError) -> str:
    """Return "No space left on device. Make room on its disk": the reason, and the cure if known.

    Without a full stop at the end.
    """
    words = error.strerror or str(error) or type(error).__name__
    cure = _CURES.get(error.errno or 0)
    return words if cure is None else f"{words}. {cure}"
