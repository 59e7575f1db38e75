"""`gpumon up`: agent and page in one process, for this machine and the configured hosts."""

from __future__ import annotations

import argparse

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.commands import demo
from gpumon.commands.agent import agent_site, make_supervisor
from gpumon.commands.daemon import log, run_daemon, set_up_logging
from gpumon.commands.one_sample import one_sample
from gpumon.commands.web import web_site
from gpumon.config.loader import load
from gpumon.errors import CollectError


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigError or StartError before that."""
    config = load(
        arguments.config,
        overrides={
            "web_port": arguments.web_port,
            "rpc_port": arguments.rpc_port,
            "token_file": arguments.token_file,
        },
    )
    set_up_logging()
    if arguments.or_demo and (reason := _nothing_to_show()) is not None:
        log.warning("%s", reason)
        log.warning("So this is the demo: an invented cluster, marked SIMULATED on every face.")
        return demo.serve(config, hosts=demo.HOSTS, seed=0)
    supervisor, fleet = make_supervisor(config), Fleet(config)
    return run_daemon(
        [agent_site(config, supervisor), web_site(config, fleet)],
        supervisor.run(),
        poll_forever(fleet, config, supervisor=supervisor),
    )


def _nothing_to_show() -> str | None:
    """Return why this machine has no GPU to show, as a sentence; None when it has one."""
    try:
        snapshot = one_sample()
    except CollectError as error:
        return str(error)
    if snapshot.gpu_count is None:
        return " ".join(snapshot.errors)
    return None if snapshot.gpu_count else "The NVIDIA driver of this machine names no GPU."
