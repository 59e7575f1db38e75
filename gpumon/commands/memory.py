"""What a server must know after a restart: when each host answered last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.seen import keep_seen, load_seen
from gpumon.config import Config


def make_fleet(config: Config) -> tuple[Fleet, list[Callable[[], Coroutine[Any, Any, None]]]]:
    """Return the fleet with what was remembered of it, and what begins to remember on."""
    path = _state_file(config)
    if path is None:
        return Fleet(config), []
    fleet = Fleet(config, seen=load_seen(path, time.time()))
    return fleet, [partial(keep_seen, path, fleet)]


def _state_file(config: Config) -> Path | None:
    """Return where: as configured, else in systemd's place for it."""
    if config.web.state_file is not None:
        return config.web.state_file
    folder = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(folder) / "seen.json" if folder else None
