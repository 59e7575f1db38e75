"""Which checks are for which machine."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import msgspec

from gpumon.commands.check import Report
from gpumon.commands.doctor import (
    certificate,
    clock,
    cluster,
    daemons,
    files,
    gpu_host,
    proxy,
)
from gpumon.commands.doctor.finding import Check
from gpumon.commands.one_sample import one_sample
from gpumon.config import Config

SAMPLE_SECONDS = 40.0
"""`one_sample` ends within 30; its own words say more than that it took too long."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts of gpumon run on this machine; `sure`: somebody said so."""

    agent: bool
    server: bool
    sure: bool


def parts_of(config: Config | None, *, agent: bool, server: bool) -> Parts:
    """Return what runs here: what the flags say, else what it looks like."""
    if agent or server:
        return Parts(agent=agent, server=server, sure=True)
    sources = {entry.source for entry in config.hosts} if config is not None else set()
    gpus = os.path.exists("/proc/driver/nvidia") or any(Path("/dev").glob("nvidia[0-9]*"))
    return Parts(agent=gpus or "self" in sources, server=bool(sources - {"self"}), sure=False)


def checks_of(report: Report, parts: Parts, url: str | None) -> list[Check]:
    """Return the checks for this machine, in the order of their lines."""
    config = report.config
    found = [
        Check(name="version", look=files.versions),
        Check(name="configuration", look=partial(files.configuration, report)),
        Check(name="clock", look=clock.clock),
    ]
    if config is not None:
        found += [
            Check(name="token", look=partial(files.tokens, config.token_file)),
            Check(name="certificate", look=partial(certificate.certificates, config.tls)),
        ]
    if parts.agent:
        found += [
            Check(name="driver", look=partial(gpu_host.driver, one_sample), seconds=SAMPLE_SECONDS),
            Check(name="devices", look=gpu_host.devices),
            Check(name="processes", look=gpu_host.processes),
        ]
        if config is not None:
            found += [
                Check(name="state", look=partial(files.state, config)),
                Check(
                    name="agent",
                    look=partial(daemons.agent, config, needed=parts.sure),
                    seconds=10.0,
                ),
            ]
    if parts.server and config is not None:
        found += [
            Check(name="page", look=partial(daemons.page, config, needed=parts.sure), seconds=10.0),
            Check(
                name="hosts",
                look=partial(cluster.hosts, config),
                seconds=cluster.seconds_needed(config),
            ),
        ]
    if url is not None:
        found.append(Check(name=proxy.NAME, look=partial(proxy.proxy, url), seconds=15.0))
    return found
