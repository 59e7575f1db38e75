"""`gpumon web`: poll the configured hosts and serve the page."""

from __future__ import annotations

import argparse
from collections.abc import Coroutine
from typing import Any

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.commands import liveness
from gpumon.commands.agent import make_supervisor
from gpumon.commands.daemon import run_daemon, set_up_logging
from gpumon.config import Config
from gpumon.config.loader import load
from gpumon.http.server import Site
from gpumon.http.sockets import join_address
from gpumon.web.app import make_app


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigError or StartError before that."""
    config = load(
        arguments.config,
        overrides={
            "web_port": arguments.web_port,
            "web.bind": arguments.bind,
            "token_file": arguments.token_file,
        },
    )
    set_up_logging()
    fleet = Fleet(config)
    sampled_here = any(entry.source == "self" for entry in config.hosts)
    supervisor = make_supervisor(config) if sampled_here else None
    background: list[Coroutine[Any, Any, None]] = [
        poll_forever(fleet, config, supervisor=supervisor)
    ]
    if supervisor is not None:
        background.append(supervisor.run())
    return run_daemon(
        [web_site(config, fleet)], *background, work=liveness.of_server(len(config.hosts))
    )


def web_site(config: Config, fleet: Fleet) -> Site:
    """Return the page as a site."""
    return Site(
        name="web",
        app=make_app(status=fleet.status, detail=fleet.detail, config=config),
        binds=[join_address(config.web.bind, config.web_port)],
    )
