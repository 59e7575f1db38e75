"""`gpumon demo`: the same server over an invented cluster, marked SIMULATED on every face."""

from __future__ import annotations

import argparse

import msgspec

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.commands.daemon import run_daemon, set_up_logging
from gpumon.commands.web import web_site
from gpumon.config import Config, HostEntry
from gpumon.config.loader import load
from gpumon.simulate import host_names

HOSTS = 7
"""As many as it takes to show every case once."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigError or StartError before that."""
    config = load(
        arguments.config,
        overrides={"web_port": arguments.web_port, "web.bind": arguments.bind},
    )
    set_up_logging()
    return serve(config, hosts=arguments.hosts, seed=arguments.seed)


def serve(config: Config, *, hosts: int, seed: int) -> int:
    """Serve the demo at the ports of `config`, whose own hosts and secrets stay out of it."""
    entries = [
        HostEntry(name=name, source="simulated", address="simulated") for name in host_names(hosts)
    ]
    config = msgspec.structs.replace(config, hosts=entries, token_file=None, tls=None)
    fleet = Fleet(config)
    return run_daemon([web_site(config, fleet)], poll_forever(fleet, config, seed=seed))
