"""The command `gpumon agent`, but its samples follow each other without a pause.

So what it keeps for half an hour, it keeps for as many samples here as it would in half an hour.
"""

from __future__ import annotations

import argparse
import sys

from gpumon.agent import usage
from gpumon.agent.supervisor import Supervisor
from gpumon.commands.agent import agent_site
from gpumon.commands.daemon import run_daemon
from gpumon.config.loader import load

INTERVAL = 0.001
PACE = 0.006
"""About how many seconds a sample takes without a pause."""
USUAL_INTERVAL = 5.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--rpc-port", required=True)
    options = parser.parse_args()
    usage.KEPT_SECONDS *= PACE / USUAL_INTERVAL
    usage.SHORT_SECONDS *= PACE / USUAL_INTERVAL
    config = load(options.config, overrides={"rpc_port": options.rpc_port})
    supervisor = Supervisor(interval=INTERVAL)
    return run_daemon([agent_site(config, supervisor, None)], supervisor.run())


if __name__ == "__main__":
    sys.exit(main())
