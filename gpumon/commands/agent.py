"""`gpumon agent`: sample this host's GPUs and answer about them."""

from __future__ import annotations

import argparse

from gpumon.agent.app import binds, make_app
from gpumon.agent.child import sampler_command
from gpumon.agent.supervisor import Supervisor
from gpumon.commands import liveness
from gpumon.commands.daemon import log, run_daemon, set_up_logging
from gpumon.config import Config
from gpumon.config.loader import load
from gpumon.http.auth import Tokens
from gpumon.http.server import Site

WITHOUT_TLS = "tls: a ca without cert and key, so this machine's own agent answers without TLS."


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigError or StartError before that."""
    config = load(
        arguments.config,
        overrides={
            "rpc_port": arguments.rpc_port,
            "agent.bind": arguments.bind,
            "token_file": arguments.token_file,
        },
    )
    set_up_logging()
    supervisor = make_supervisor(config)
    return run_daemon(
        [agent_site(config, supervisor)],
        supervisor.run(),
        work=liveness.of_agent(supervisor.latest),
    )


def make_supervisor(config: Config) -> Supervisor:
    """Return the supervisor of this host's sampler, as the configuration wants it."""
    return Supervisor(
        interval=config.agent.sample_interval,
        limits=config.limits,
        command=sampler_command(config.agent),
    )


def agent_site(config: Config, supervisor: Supervisor) -> Site:
    """Return the agent as a site, open as far as the configuration allows."""
    tokens = None if config.token_file is None else Tokens.load(config.token_file)
    addresses, warning = binds(config)
    if warning is not None:
        log.warning(warning)
    tls = config.tls
    if tls is not None and tls.cert is None:
        log.warning(WITHOUT_TLS)
        tls = None
    return Site(name="agent", app=make_app(supervisor.latest, tokens), binds=addresses, tls=tls)
