"""`gpumon up`: agent and page in one process, for this machine and the configured hosts."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from gpumon.cluster.sources.pushed import watch_pushed
from gpumon.commands import agent, demo, liveness, polling
from gpumon.commands.agent import agent_site, load_tokens, make_supervisor
from gpumon.commands.daemon import log, run_daemon, set_up_logging
from gpumon.commands.memory import make_fleet
from gpumon.commands.one_sample import one_sample
from gpumon.commands.polling import Polling
from gpumon.commands.pushing import make_pusher
from gpumon.commands.reload import reload_on_hangup
from gpumon.commands.ways_in import WaysIn
from gpumon.commands.web import web_site
from gpumon.config import Config
from gpumon.config.loader import load
from gpumon.errors import CollectError


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigError or StartError before that."""
    read = partial(
        load,
        arguments.config,
        overrides={
            "web_port": arguments.web_port,
            "rpc_port": arguments.rpc_port,
            "token_file": arguments.token_file,
        },
    )
    config = read()
    set_up_logging()
    if arguments.or_demo and (reason := _nothing_to_show()) is not None:
        log.warning("%s", reason)
        log.warning("So this is the demo: an invented cluster, marked SIMULATED on every face.")
        return demo.serve(config, hosts=demo.HOSTS, seed=0)
    supervisor, tokens = make_supervisor(config), load_tokens(config)
    fleet, remembering = make_fleet(config)
    pusher = make_pusher(config, supervisor, tokens)
    ways_in = WaysIn(config, fleet)
    polls = Polling(fleet, config, ways_in, supervisor)

    def prepared(new: Config, wanted: Config) -> Callable[[], None]:
        # Before anything changes, both sides must be able to.
        sides = [
            agent.prepared(new, wanted, supervisor=supervisor, tokens=tokens),
            polls.prepared(new, wanted),
        ]

        def commit() -> None:
            for use in sides:
                use()

        return commit

    return run_daemon(
        [agent_site(config, supervisor, tokens), web_site(config, fleet, ways_in)],
        supervisor.run(),
        polls.run(),
        watch_pushed(fleet),
        reload_on_hangup(read, config, hot=_hot, prepare=prepared),
        *(remember() for remember in remembering),
        *([] if pusher is None else [pusher.run()]),
        work=liveness.of_agent(supervisor.latest),
    )


def _hot(old: Config, new: Config) -> set[str]:
    """Return what may change: what may for server and agent, where both have a part in it."""
    of_agent = set(agent.hot(old, new))
    return of_agent | set(polling.hot(old, new)) - {"rpc_port", "tls", "limits", "token_file"}


def _nothing_to_show() -> str | None:
    """Return why this machine has no GPU to show, as a sentence; None when it has one."""
    try:
        snapshot = one_sample()
    except CollectError as error:
        return str(error)
    if snapshot.gpu_count is None:
        return " ".join(snapshot.errors)
    return None if snapshot.gpu_count else "The NVIDIA driver of this machine names no GPU."
