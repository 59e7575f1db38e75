"""`gpumon export`: ask all hosts once and write web-gpu-monitor's files, for cron."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.commands.agent import make_supervisor
from gpumon.commands.daemon import set_up_logging
from gpumon.config import Config
from gpumon.config.loader import load
from gpumon.errors import StartError
from gpumon.unwritable import why_unwritable
from gpumon.web.earlier.load_csv import load_csv
from gpumon.web.earlier.static_page import static_page

FIRST_SAMPLE_SECONDS = 20.0
"""How long this machine's own first reading may take, where it is among the hosts."""
_STEP_SECONDS = 0.05


def run(arguments: argparse.Namespace) -> int:
    """Write the files. Raises ConfigError, or StartError where one can't be written.

    Ends with 0 also when hosts are silent: the page says which, and why.
    """
    config = load(arguments.config, overrides={"token_file": arguments.token_file})
    if arguments.html is None and arguments.csv is None:
        raise StartError("name at least one file to write: --html DIRECTORY or --csv FILE")
    set_up_logging()
    fleet = asyncio.run(_one_round(config))
    status = fleet.status()
    if arguments.csv is not None:
        _write(Path(arguments.csv), load_csv(status, fleet.detail))
    if arguments.html is not None:
        _write(Path(arguments.html, "index.html"), static_page(status, fleet.detail))
    return 0


async def _one_round(config: Config) -> Fleet:
    """Return the fleet once every host has answered, or was asked and did not."""
    fleet = Fleet(config)
    own = [entry.name for entry in config.hosts if entry.source == "self"]
    supervisor = make_supervisor(config) if own else None
    work = [asyncio.create_task(poll_forever(fleet, config, supervisor=supervisor))]
    if supervisor is not None:
        work.append(asyncio.create_task(supervisor.run()))
    start = time.monotonic()
    # Polls begin side by side, some hundred at a time, and each ends by its own deadline.
    longest = FIRST_SAMPLE_SECONDS + (2 + len(config.hosts) / 100) * config.rpc_timeout
    try:
        while not _all_asked(fleet, config, own, time.monotonic() - start):
            if time.monotonic() - start > longest:
                break
            done, _ = await asyncio.wait(
                work, timeout=_STEP_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()  # neither ends by itself but with an error
    finally:
        for task in work:
            task.cancel()
        for task in work:
            with contextlib.suppress(asyncio.CancelledError):
                await task
    return fleet


def _all_asked(fleet: Fleet, config: Config, own: list[str], waited: float) -> bool:
    if own and waited < FIRST_SAMPLE_SECONDS and any(not fleet.record(n).reading for n in own):
        return False
    # Nobody asks a host that pushes: here it is one that has not been heard of.
    asked = [entry.name for entry in config.hosts if entry.source != "pushed"]
    return all(fleet.record(name).asked is not None for name in asked)


def _write(path: Path, text: str) -> None:
    """Write a file so that readers see the old one or the new one, never a part."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="replace", dir=path.parent, prefix=".", delete=False
        ) as file:
            temporary = file.name
            file.write(text)
        os.chmod(temporary, 0o644)  # a web server of another user hands it out
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise StartError(f"{path} can't be written: {why_unwritable(error)}") from error
