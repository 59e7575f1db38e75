"""`gpumon web`: poll the configured hosts and serve the page."""

from __future__ import annotations

import argparse
from functools import partial

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.sources.pushed import watch_pushed
from gpumon.commands import liveness, polling
from gpumon.commands.daemon import run_daemon, set_up_logging
from gpumon.commands.memory import make_fleet
from gpumon.commands.polling import Polling
from gpumon.commands.reload import reload_on_hangup
from gpumon.commands.ways_in import WaysIn
from gpumon.config import Config
from gpumon.config.loader import load
from gpumon.http.server import Site
from gpumon.http.sockets import join_address
from gpumon.web.app import make_app
from gpumon.web.entrances import body_limit_of


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigError or StartError before that."""
    read = partial(
        load,
        arguments.config,
        overrides={
            "web_port": arguments.web_port,
            "web.bind": arguments.bind,
            "token_file": arguments.token_file,
        },
    )
    config = read()
    set_up_logging()
    fleet, remembering = make_fleet(config)
    ways_in = WaysIn(config, fleet)
    polls = Polling(fleet, config, ways_in)
    return run_daemon(
        [web_site(config, fleet, ways_in)],
        polls.run(),
        watch_pushed(fleet),
        reload_on_hangup(read, config, hot=polling.hot, prepare=polls.prepared),
        *(remember() for remember in remembering),
        work=liveness.of_server(len(config.hosts)),
    )


def web_site(config: Config, fleet: Fleet, ways_in: WaysIn | None = None) -> Site:
    """Return the page as a site."""
    entrances = [] if ways_in is None else ways_in.entrances
    return Site(
        name="web",
        app=make_app(
            status=fleet.status,
            detail=fleet.detail,
            config=config,
            entrances=entrances,
            polls=fleet.polls,
            entries=fleet.entries,
        ),
        binds=[join_address(config.web.bind, config.web_port)],
        body_limit=partial(body_limit_of, entrances),
    )
