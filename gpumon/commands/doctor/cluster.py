"""Every host of the configuration, asked once: does it answer, is its clock right, its version?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import msgspec

from gpumon.commands.doctor.answers import is_asked, not_asked, trouble_of
from gpumon.commands.doctor.finding import Finding, fault, ok, warning
from gpumon.config import Config
from gpumon.errors import GpumonError, SourceError
from gpumon.summary import HostSummary
from gpumon.units import duration
from gpumon.version import __version__

AT_ONCE = 64
SKEW_SECONDS = 30.0
MOST_TOLD = 20
"""So many hosts are named for one kind of trouble; the others are counted."""


class Asked(msgspec.Struct, frozen=True):
    """What came of asking one host."""

    host: str
    summary: HostSummary | None
    error: str | None
    skew: float | None
    """Seconds by which the host's clock is ahead of this one's."""
    trouble: str | None = None
    """What is wrong with it though it answers."""


def seconds_needed(config: Config) -> float:
    """Return how long asking all hosts may take."""
    rounds = -(-len(config.hosts) // AT_ONCE)
    return rounds * config.rpc_timeout + 10.0


def hosts(config: Config) -> Iterator[Finding]:
    """Ask all hosts that can be asked, and name those that can't."""
    name = "hosts"
    try:
        asked = asyncio.run(_ask_all(config))
    except ModuleNotFoundError as error:
        yield warning(
            name,
            f"the library {error.name} is missing, so the hosts can't be asked",
            "pip install 'gpumon-cluster[server]'",
        )
        return
    except GpumonError as error:
        yield fault(name, str(error), "See the line on the configuration")
        return
    answered = [one for one in asked if one.summary is not None]
    if answered:
        yield ok(name, f"{len(answered)} of {len(asked)} answer")
    yield from not_asked(name, config.hosts)
    yield from _cut([one for one in asked if one.error is not None], _silent, name)
    yield from _cut([one for one in answered if one.trouble is not None], _troubled, name)
    yield from _cut([one for one in answered if _is_off(one)], _skewed, "clock of host")
    yield from _cut([one for one in answered if _is_other(one)], _other_version, "version of host")


def _cut(
    found: list[Asked], tell: Callable[[str, Asked], Finding], check: str
) -> Iterator[Finding]:
    for one in found[:MOST_TOLD]:
        yield tell(check, one)
    if len(found) > MOST_TOLD:
        yield warning(
            check, f"and {len(found) - MOST_TOLD} more hosts like these", "See the page for all"
        )


def _silent(check: str, one: Asked) -> Finding:
    text, _, cure = (one.error or "").partition(". ")
    return fault(check, f"{one.host}: {text}", cure or "Run gpumon doctor on that host")


def _troubled(check: str, one: Asked) -> Finding:
    text, _, cure = (one.trouble or "").partition(". ")
    return warning(
        check, f"{one.host} answers, but: {text}", cure or "Run gpumon doctor on that host"
    )


def _is_off(one: Asked) -> bool:
    return one.skew is not None and abs(one.skew) > SKEW_SECONDS


def _skewed(check: str, one: Asked) -> Finding:
    skew = one.skew or 0.0
    side = "ahead of" if skew > 0 else "behind"
    return warning(
        check,
        f"{one.host}: {duration(abs(skew))} {side} this machine's",
        "Check the time services of both: chronyc tracking, timedatectl",
    )


def _is_other(one: Asked) -> bool:
    return one.summary is not None and one.summary.agent_version not in (None, __version__)


def _other_version(check: str, one: Asked) -> Finding:
    running = one.summary.agent_version if one.summary is not None else None
    return warning(
        check,
        f"{one.host}: gpumon {running}, here {__version__}",
        "Versions mix, but new fields stay unknown: update the older one",
    )


async def _ask_all(config: Config) -> list[Asked]:
    # Only here: the server's libraries are not on every GPU host.
    from gpumon.cluster.sources.build import open_sources

    entries = [entry for entry in config.hosts if is_asked(entry)]
    gate = asyncio.Semaphore(AT_ONCE)
    async with open_sources(msgspec.structs.replace(config, hosts=entries)) as sources:

        async def ask(name: str) -> Asked:
            source = sources[name]
            async with gate:
                try:
                    reading = await asyncio.wait_for(source.poll(), config.rpc_timeout)
                except asyncio.TimeoutError:
                    return Asked(name, None, str(source.timed_out(config.rpc_timeout)), None)
                except SourceError as error:
                    return Asked(name, None, str(error), None)
                except Exception as error:  # a fault of ours costs this host's line only
                    return Asked(name, None, f"{type(error).__name__}: {error}", None)
                summary = reading.summary
                skew = _skew(summary, time.time())
                return Asked(name, summary, None, skew, trouble_of(reading, config))

        return list(await asyncio.gather(*(ask(entry.name) for entry in entries)))


def _skew(summary: HostSummary, now: float) -> float | None:
    if summary.time is None or summary.sample_age_seconds is None:
        return None
    return summary.time + summary.sample_age_seconds - now
