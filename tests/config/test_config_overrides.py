"""A flag wins over a variable, a variable over the file, by the same rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.config.loader import load
from gpumon.config.settings import SETTINGS
from gpumon.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "config.yml"
    path.write_text("web_port: 1001\nrpc_port: 1001\ntoken_file: token\nhosts: [host1]\n")
    return str(path)


def test_a_variable_wins_over_the_file(file: str) -> None:
    config = load(
        file,
        environ={
            "GPUMON_WEB_PORT": "1002",
            "GPUMON_RPC_PORT": " 1003".strip(),
            "GPUMON_TOKEN_FILE": "/run/token",
            "GPUMON_WEB_BIND": "::1",
            "GPUMON_AGENT_BIND": "[::]",
        },
    )
    assert (config.web_port, config.rpc_port) == (1002, 1003)
    assert config.hosts[0].port == 1003
    assert config.token_file == Path("/run/token")
    assert (config.web.bind, config.agent.bind) == ("::1", "::")


def test_a_flag_wins_over_a_variable(file: str) -> None:
    config = load(
        file,
        environ={"GPUMON_WEB_PORT": "1002", "GPUMON_RPC_PORT": "1002"},
        overrides={"web_port": "1003", "rpc_port": None},
    )
    assert (config.web_port, config.rpc_port) == (1003, 1002)


def test_flags_may_come_as_numbers_and_paths(file: str) -> None:
    config = load(file, environ={}, overrides={"rpc_port": 1003, "token_file": Path("/run/t")})
    assert (config.rpc_port, config.token_file) == (1003, Path("/run/t"))


def test_an_empty_variable_is_none(file: str) -> None:
    assert load(file, environ={"GPUMON_WEB_PORT": "", "GPUMON_TOKEN_FILE": " "}).web_port == 1001


def test_paths_of_variables_and_flags_start_from_the_working_folder(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert load(file, environ={}).token_file == tmp_path / "token"
    assert load(file, environ={"GPUMON_TOKEN_FILE": "t"}).token_file == here / "t"
    assert load(file, environ={}, overrides={"token_file": "t"}).token_file == here / "t"


def test_faults_name_the_variable_or_the_flag_after_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    path.write_text("\nrpc_timeout: 0\n")
    with pytest.raises(ConfigError) as caught:
        load(
            str(path),
            environ={"GPUMON_RPC_PORT": "98000", "GPUMON_TOKEN_FILE": "~/token"},
            overrides={"web_port": "http", "agent.bind": "gpu01", "token_file": ""},
        )
    assert [fault.removeprefix(f"{path}:2: ") for fault in caught.value.faults] == [
        'rpc_timeout: expected a number of seconds from 0.1 to 300, found "0". '
        "Remove the line to use 2.",
        'GPUMON_RPC_PORT: expected a number from 1 to 65535, found "98000". '
        "Unset it to do without.",
        'GPUMON_TOKEN_FILE: expected the path of a file, found a path with "~". '
        "That is another folder for every user who starts gpumon. Write the whole path.",
        '--web-port: expected a number from 1 to 65535, found "http". Leave it out to do without.',
        '--bind: expected an IP address of this machine or localhost, no port, found "gpu01". '
        'Write 127.0.0.1 for this machine alone, 0.0.0.0 or "::" for everyone.',
        "--token-file: expected the path of a file, found nothing. Leave it out to do without.",
    ]


def test_variables_hold_without_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpumon.config.file.SYSTEM", str(tmp_path / "none.yml"))
    config = load(environ={"GPUMON_RPC_PORT": "1003"})
    assert (config.path, config.rpc_port) == (None, 1003)


def test_an_override_of_a_setting_that_does_not_exist_is_a_mistake_of_the_caller(file: str) -> None:
    with pytest.raises(KeyError):
        load(file, environ={}, overrides={"bind": "127.0.0.1"})


def test_a_faulty_value_of_the_file_is_told_even_where_a_flag_wins(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    path.write_text("web_port: x\n")
    with pytest.raises(ConfigError, match="web_port: expected"):
        load(str(path), environ={}, overrides={"web_port": 8042})


def test_variables_are_named_after_their_settings() -> None:
    for setting in SETTINGS.values():
        if setting.variable is not None:
            assert setting.variable == "GPUMON_" + setting.name.upper().replace(".", "_")
