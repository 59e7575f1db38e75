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
from gpumon.unwritable import why_unwritable

log = logging.getLogger(__name__)

SAVE_SECONDS = 60.0
LOOK_SECONDS = 0.5
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
    """Write the file after the first sweep, then every minute until cancelled, and once more then.

    So a server that is killed soon after its start has not forgotten what it saw.
    """
    told = ""
    try:
        await _first_sweep(fleet)
        while True:
            words = await asyncio.to_thread(_saved, path, fleet)
            if words and words != told:
                log.warning("%s", words)
            told = words
            await asyncio.sleep(SAVE_SECONDS)
    finally:
        words = _saved(path, fleet)
        if words and words != told:
            log.warning("%s", words)


async def _first_sweep(fleet: Fleet) -> None:
    """Wait until every host was asked that the server asks, at most for a minute."""
    for _ in range(round(SAVE_SECONDS / LOOK_SECONDS)):
        if all(r.asked is not None or r.entry.source == "pushed" for r in fleet.records()):
            return
        await asyncio.sleep(LOOK_SECONDS)


def _saved(path: Path, fleet: Fleet) -> str:
    """Save; return a sentence where that failed, else ""."""
    try:
        save_seen(path, fleet.records())
    except OSError as error:
        return f"web.state_file: {path} can't be written: {clean(why_unwritable(error), 300)}"
    return ""


def _words(error: Exception) -> str:
    return clean(getattr(error, "strerror", None) or str(error), 120)
