"""When each host answered last, kept over a restart of the server.

Without it a host that is silent after a restart is `never`, though it may have been down for a week
or have worked a minute ago.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.record import Record
from gpumon.text import clean

log = logging.getLogger(__name__)

SAVE_SECONDS = 60.0
MAX_BYTES = 4 * 1024 * 1024
MOST_HOSTS = 20_000


class Seen(msgspec.Struct, forbid_unknown_fields=True):
    """The file: host -> epoch seconds, by this server's clock, of its last answer."""

    seen: dict[str, float] = {}


def load_seen(path: Path, now: float) -> dict[str, float]:
    """Return what the file says of times up to `now` (epoch seconds).

    A file that can't be used is told in the log, and as good as none.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES} bytes")
        seen = msgspec.json.decode(data, type=Seen).seen
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        log.warning("web.state_file: %s can't be used (%s): left aside", path, _words(error))
        return {}
    return {host: at for host, at in seen.items() if 0.0 < at <= now}


def save_seen(path: Path, records: Iterable[Record]) -> None:
    """Write the file anew, whole or not at all. Raises OSError."""
    seen = {
        record.entry.name: at
        for record in records
        if (at := record.seen_at if record.answered_at is None else record.answered_at) is not None
    }
    data = msgspec.json.encode(Seen(seen=dict(list(seen.items())[:MOST_HOSTS])))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


async def keep_seen(path: Path, fleet: Fleet) -> None:
    """Write the file every minute until cancelled, and once more then."""
    told = ""
    try:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            words = await asyncio.to_thread(_saved, path, fleet)
            if words and words != told:
                log.warning("%s", words)
            told = words
    finally:
        words = _saved(path, fleet)
        if words and words != told:
            log.warning("%s", words)


def _saved(path: Path, fleet: Fleet) -> str:
    """Save; return a sentence where that failed, else ""."""
    try:
        save_seen(path, fleet.records())
    except OSError as error:
        return f"web.state_file: {path} can't be written ({_words(error)})"
    return ""


def _words(error: Exception) -> str:
    return clean(getattr(error, "strerror", None) or str(error), 120)
