"""Which file is the configuration, and its text."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from gpumon.config.document import Fields, Node
from gpumon.config.settings import TOP_KEYS
from gpumon.config.walk import is_near
from gpumon.errors import ConfigError
from gpumon.text import clean

HERE = "config.yml"
SYSTEM = "/etc/gpumon/config.yml"
MAX_BYTES = 1024 * 1024
"""Ten thousand hosts in their long form fit in."""


class Found(NamedTuple):
    """The file that is to be read, and how it was come by."""

    path: Path
    """Absolute, so that a later reload does not depend on the working folder."""
    label: str
    """What messages call it: what the person wrote."""
    by: Literal["name", "variable", "search here", "search"]


def find(path: str | None, environ: Mapping[str, str]) -> Found | None:
    """Return the file to read; None where nobody names one and none lies where they are looked for.

    A file that is named and missing is found all the same: reading it tells so.
    """
    if path is not None:
        return Found(absolute(path), clean(path, 4096), "name")
    named = environ.get("GPUMON_CONFIG", "").strip()
    if named:
        return Found(absolute(named), clean(named, 4096), "variable")
    for candidate in (HERE, SYSTEM):
        try:
            os.lstat(candidate)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass  # It may be there: reading it gives the reason.
        by: Literal["search here", "search"] = "search here" if candidate == HERE else "search"
        return Found(absolute(candidate), candidate, by)
    return None


def absolute(path: str | Path) -> Path:
    """Return the path with the working folder before it, where it is relative and there is one."""
    try:
        return Path(os.path.abspath(path))
    except OSError:
        return Path(path)  # The working folder was deleted; opening the file will say so.


def read_text(found: Found) -> str:
    """Return the text of the file. Raises ConfigError with one sentence."""
    try:
        with open(found.path, "rb", opener=_without_waiting) as file:
            _refuse_unfit(os.fstat(file.fileno()), found)
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        by = "GPUMON_CONFIG names it. " if found.by == "variable" else ""
        raise ConfigError(
            [f"{found.label}: there is no such file. {by}Name one that exists."]
        ) from None
    except IsADirectoryError:
        raise ConfigError([f"{found.label}: a folder. Name the file in it."]) from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError(
            [
                f"{found.label}: can't be read: {reason}. Run gpumon as a user who may read it, "
                "or name another file with --config."
            ]
        ) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(
            [f"{found.label}: larger than {MAX_BYTES // 1024} KiB. Name gpumon's configuration."]
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            [f"{found.label}:{line}: not UTF-8 text. Save the file as UTF-8."]
        ) from None


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that nobody writes to does not hold us."""
    return os.open(path, flags | os.O_NONBLOCK)


def _refuse_unfit(status: os.stat_result, found: Found) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError([f"{found.label}: not a regular file. Name a YAML file."])
    # Whoever starts gpumon in a folder of somebody else must not send a token to that one's hosts.
    if found.by == "search here" and status.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            [
                f"{found.label}: lies in the working folder and belongs to another user (uid "
                f"{status.st_uid}). Write --config {found.label} to use it nevertheless."
            ]
        )


def refuse_foreign(root: Node | None, found: Found) -> None:
    """Refuse another program's config.yml in the working folder, in one sentence."""
    if found.by != "search here" or not isinstance(root, Fields):
        return
    keys = [key.text for key, _ in root.pairs]
    if keys and not any(key in TOP_KEYS or is_near(key, TOP_KEYS) for key in keys):
        raise ConfigError(
            [
                f"{found.label}: the file in the working folder is not gpumon's: none of its keys "
                "is known. Start gpumon in another folder or name its file with --config."
            ]
        )
