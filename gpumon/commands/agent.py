"""`gpumon agent`: sample this host's GPUs and answer about them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from functools import partial

from gpumon.agent.app import binds, make_app
from gpumon.agent.launch import sampler_command
from gpumon.agent.supervisor import Supervisor
from gpumon.commands import liveness
from gpumon.commands.daemon import log, run_daemon, set_up_logging
from gpumon.commands.pushing import make_pusher
from gpumon.commands.reload import reload_on_hangup
from gpumon.config import Config
from gpumon.config.loader import load
from gpumon.http.auth import Tokens
from gpumon.http.server import Site
from gpumon.http.tls import server_context

WITHOUT_TLS = "tls: a ca without cert and key, so this machine's own agent answers without TLS."

HOT = ("agent.owner_rules", "agent.container_socket", "agent.state_file")
"""Settings of an agent that may change while it runs: those of its sampler."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigError or StartError before that."""
    read = partial(
        load,
        arguments.config,
        overrides={
            "rpc_port": arguments.rpc_port,
            "agent.bind": arguments.bind,
            "agent.push": arguments.push,
            "token_file": arguments.token_file,
        },
    )
    config = read()
    set_up_logging()
    supervisor, tokens = make_supervisor(config), load_tokens(config)
    pusher = make_pusher(config, supervisor, tokens)
    return run_daemon(
        [agent_site(config, supervisor, tokens)],
        supervisor.run(),
        reload_on_hangup(
            read,
            config,
            hot=hot,
            prepare=partial(prepared, supervisor=supervisor, tokens=tokens),
        ),
        *([] if pusher is None else [pusher.run()]),
        work=liveness.of_agent(supervisor.latest),
    )


def make_supervisor(config: Config) -> Supervisor:
    """Return the supervisor of this host's sampler, as the configuration wants it."""
    return Supervisor(
        interval=config.agent.sample_interval,
        limits=config.limits,
        command=sampler_command(config.agent),
    )


def load_tokens(config: Config) -> Tokens | None:
    """Return the tokens of the configuration; None: it names no file. Raises SetupError."""
    return None if config.token_file is None else Tokens.load(config.token_file)


def agent_site(config: Config, supervisor: Supervisor, tokens: Tokens | None) -> Site:
    """Return the agent as a site, open as far as the configuration allows."""
    addresses, warning = binds(config)
    if warning is not None:
        log.warning(warning)
    tls = config.tls
    if tls is not None and tls.cert is None:
        log.warning(WITHOUT_TLS)
        tls = None
    app = make_app(supervisor.latest, tokens, limits=config.limits, metrics=config.metrics)
    return Site(name="agent", app=app, binds=addresses, tls=tls)


def hot(old: Config, new: Config) -> Collection[str]:
    """Return what may change between two configurations of an agent while it runs."""
    # With the first token and without the last one, the agent listens elsewhere.
    same = (old.token_file is None) == (new.token_file is None)
    return [*HOT, "token_file"] if same else HOT


def prepared(
    config: Config, wanted: Config, *, supervisor: Supervisor, tokens: Tokens | None
) -> Callable[[], None]:
    """Read what another configuration names; return what goes over to it.

    `config` is the one to go over to, `wanted` the one that would hold after a restart. Raises
    SetupError where an agent could not start with that, and changes nothing then.
    """
    newer = load_tokens(wanted)
    make_pusher(wanted, supervisor, newer)
    if wanted.tls is not None and wanted.tls.cert is not None:
        server_context(wanted.tls)

    def commit() -> None:
        # With the first token and without the last one, the agent listens elsewhere: that waits.
        if tokens is not None and newer is not None:
            tokens.take_over(newer)
        supervisor.replace_command(sampler_command(config.agent))

    return commit
