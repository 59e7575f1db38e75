"""The agent that pushes, as the configuration wants it."""

from __future__ import annotations

import socket

from gpumon.agent.push import Pusher
from gpumon.agent.supervisor import Supervisor
from gpumon.config import Config
from gpumon.config.kinds import MACHINE
from gpumon.errors import SetupError
from gpumon.http.auth import Tokens
from gpumon.text import clean


def make_pusher(config: Config, supervisor: Supervisor, tokens: Tokens | None) -> Pusher | None:
    """Return what pushes this host's samples; None: nothing is configured.

    Raises SetupError where the token or the name to push under is missing.
    """
    agent = config.agent
    if agent.push is None:
        return None
    if tokens is None:
        raise SetupError(
            f"agent.push: a push to {agent.push} needs a token. Set token_file to a file whose "
            "first line is one of the server's web.push_token_file"
        )
    name = agent.push_as or socket.gethostname()
    if not MACHINE.match(name):
        raise SetupError(
            f"agent.push_as: this machine's name ({clean(name, 80)}) is none to push under. Set it "
            "to the NAME of push://NAME in the server's hosts"
        )
    return Pusher(
        supervisor.latest, url=agent.push, name=name, token=lambda: tokens.first, tls=config.tls
    )
