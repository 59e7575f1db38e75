"""Where the agent listens: nowhere but here until somebody decided who may ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.agent.app import binds
from gpumon.config import AgentConfig, Config


def config(bind: str, *, anonymous: bool = False, token: Path | None = None) -> Config:
    agent = AgentConfig(bind=bind, allow_anonymous=anonymous)
    return Config(rpc_port=9043, token_file=token, agent=agent)


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "10.1.2.3", "gpu7.example"])
def test_without_a_token_it_listens_on_loopback_and_says_how_to_open_it(bind):
    where, warning = binds(config(bind))
    assert where == ["127.0.0.1:9043"]
    assert warning == (
        "no token_file: the agent answers on 127.0.0.1 only. To open it write "
        "token_file: /etc/gpumon/token or agent: {allow_anonymous: true} in config.yml"
    )


@pytest.mark.parametrize(
    ("bind", "where"),
    [("0.0.0.0", "0.0.0.0:9043"), ("::", "[::]:9043"), ("gpu7.example", "gpu7.example:9043")],
)
def test_with_a_token_or_permission_it_listens_where_it_was_told_to(bind, where):
    assert binds(config(bind, token=Path("/token"))) == ([where], None)
    assert binds(config(bind, anonymous=True)) == ([where], None)


@pytest.mark.parametrize(
    ("bind", "where"),
    [("127.0.0.1", "127.0.0.1:9043"), ("::1", "[::1]:9043"), ("localhost", "localhost:9043")],
)
def test_loopback_needs_no_token_and_no_warning(bind, where):
    assert binds(config(bind)) == ([where], None)
