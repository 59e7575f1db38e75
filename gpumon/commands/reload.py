"""SIGHUP: read the configuration again, all of it or nothing, without losing what is known."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress

import msgspec

from gpumon.config import Config
from gpumon.config.settings import SETTINGS
from gpumon.errors import GpumonError

log = logging.getLogger("gpumon")

Prepare = Callable[[Config, Config], Callable[[], None]]
"""Takes the configuration to go over to, and the one that would hold after a restart."""


async def reload_on_hangup(
    read: Callable[[], Config],
    config: Config,
    *,
    hot: Callable[[Config, Config], Collection[str]],
    prepare: Prepare,
) -> None:
    """Take over the configuration that `read` returns at every SIGHUP, until cancelled.

    `config` is the one that runs. `hot` names the settings that can change between two of them
    ("hosts", "web.title"); what else differs is named in the log and stays as it was. `prepare`
    reads what a configuration names and returns what puts it to use, which can't fail; it, as
    `read`, raises GpumonError where something is wrong, and then everything stays.
    """
    hangups = asyncio.Event()
    loop = asyncio.get_running_loop()
    terminal = os.isatty(2)
    loop.add_signal_handler(signal.SIGHUP, hangups.set)
    try:
        while True:
            await hangups.wait()
            hangups.clear()
            if terminal and not os.isatty(2):
                # The terminal was closed: that is an end, as it is for everything started in it.
                os.kill(os.getpid(), signal.SIGTERM)
                continue
            config = _reloaded(read, config, hot, prepare)
    finally:
        with suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGHUP)


def _reloaded(
    read: Callable[[], Config],
    config: Config,
    hot: Callable[[Config, Config], Collection[str]],
    prepare: Prepare,
) -> Config:
    """Return the configuration that runs now: the new one, or that of before with the reason."""
    try:
        wanted = read()
        merged, held_back = merge(config, wanted, hot(config, wanted))
        use = prepare(merged, wanted)
    except GpumonError as error:
        *others, last = str(error).splitlines()
        for line in others:
            log.error("reload: %s", line)
        log.error("reload: %s. The configuration of before stays in use", last.rstrip("."))
        return config
    use()
    for name in held_back:
        log.warning("reload: %s has changed, which takes a restart", name)
    log.info("reload: done")
    return merged


def merge(old: Config, new: Config, hot: Collection[str]) -> tuple[Config, list[str]]:
    """Return `old` with the settings `hot` of `new`, and the names of the others that differ."""
    merged = old
    for name in hot:
        section, _, key = name.rpartition(".")
        if section:
            part = msgspec.structs.replace(
                getattr(merged, section), **{key: getattr(getattr(new, section), key)}
            )
            merged = msgspec.structs.replace(merged, **{section: part})
        else:
            merged = msgspec.structs.replace(merged, **{key: getattr(new, key)})
    return merged, [name for name in SETTINGS if _value(merged, name) != _value(new, name)]


def _value(config: Config, name: str) -> object:
    value: object = config
    for part in name.split("."):
        value = getattr(value, part) if value is not None else None
    return value
