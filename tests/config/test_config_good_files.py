"""What may be written, and what it comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.config import (
    AgentConfig,
    Config,
    HostEntry,
    Limits,
    MetricsConfig,
    OwnerRule,
    TlsConfig,
    WebConfig,
)
from gpumon.config.loader import load

GOOD = Path(__file__).parent / "good"
SELF = HostEntry(name="self", source="self", address="self")


def read(name: str) -> Config:
    return load(str(GOOD / name), environ={})


def agent(name: str, host: str, port: int) -> HostEntry:
    return HostEntry(name=name, source="xmlrpc", address=f"{host}:{port}", host=host, port=port)


def test_a_configuration_of_gpumonitor_works_unchanged() -> None:
    assert read("gpumonitor.yml") == Config(
        path=GOOD / "gpumonitor.yml",
        web_port=9042,
        rpc_port=9043,
        rpc_timeout=10.0,
        hosts=[agent(name, name, 9043) for name in ("host1", "host2", "host3")],
    )


@pytest.mark.parametrize("name", ["empty.yml", "only_comments.yml", "commented_sections.yml"])
def test_a_file_that_says_nothing_leaves_every_default_and_this_machine(name: str) -> None:
    assert read(name) == Config(path=GOOD / name, hosts=[SELF])


def test_a_file_from_windows_is_read() -> None:
    config = read("from_windows.yml")
    assert (config.web_port, config.rpc_port) == (9042, 9043)


def test_an_empty_list_of_hosts_is_no_host_and_not_this_machine() -> None:
    assert read("no_hosts.yml").hosts == []


def test_every_key_arrives_where_it_belongs() -> None:
    assert read("every_key.yml") == Config(
        path=GOOD / "every_key.yml",
        web_port=9042,
        rpc_port=9043,
        rpc_timeout=0.5,
        poll_interval=10.0,
        token_file=GOOD / "secrets" / "token",
        tls=TlsConfig(
            cert=GOOD / "cert.pem", key=Path("/etc/ssl/key.pem"), ca=GOOD.parent / "ca.pem"
        ),
        agent=AgentConfig(
            bind="::",
            sample_interval=2.5,
            allow_anonymous=True,
            state_file=GOOD / "state" / "health.json",
            container_socket=Path("/run/podman/podman.sock"),
            owner_rules=[
                OwnerRule(label="com.example.user"),
                OwnerRule(environment="JOB_OWNER", any=True),
                OwnerRule(home_mount=True),
                OwnerRule(container_name="^(?P<user>[a-z]+)-"),
            ],
        ),
        web=WebConfig(
            bind="localhost",
            title="GPUs of lab 7: all",
            prefix="/gpus/a",
            trusted_proxies=["10.0.0.0/8", "::1", "192.168.1.7"],
            hostnames=["gpus.example.org", "gpus"],
        ),
        metrics=MetricsConfig(users=False),
        limits=Limits(used_percent=0.0, idle_minutes=7.5),
        hosts=[
            HostEntry(
                name="DGX 3",
                source="xmlrpc",
                address="https://10.0.0.7:9000",
                host="10.0.0.7",
                port=9000,
                tls=True,
                labels={"room": "12", "rack": "on"},
                drained=True,
            )
        ],
    )


def test_what_yaml_would_take_for_numbers_and_booleans_are_host_names() -> None:
    hosts = [(host.name, host.host, host.port) for host in read("yaml_traps.yml").hosts]
    assert hosts == [
        ("10", "10", 8043),
        ("on", "on", 8043),
        ("No", "no", 8043),
        ("0x1f", "0x1f", 8043),
        ("1e3", "1e3", 8043),
        ("017", "017", 8043),
        ("12", "12", 30),
        ("2001-01-01", "2001-01-01", 8043),
        ("null", "null", 8043),
        ("20", "20", 8043),
        ("30", "40", 8043),
    ]


def test_every_good_file_is_read_by_a_test() -> None:
    source = Path(__file__).read_text("utf-8")
    assert [path.name for path in GOOD.iterdir() if path.name not in source] == []


@pytest.mark.parametrize(
    ("written", "prefix"),
    [('""', ""), ("/", ""), ("/gpus", "/gpus"), ("gpus/", "/gpus"), ("//a/b//", "/a/b")],
)
def test_a_prefix_begins_with_a_slash_and_ends_without(
    written: str, prefix: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.yml"
    path.write_text(f"web: {{prefix: {written}}}\n")
    assert load(str(path), environ={}).web.prefix == prefix


@pytest.mark.parametrize("number", ["1", "0.5", "3600", "007.5"])
def test_seconds_may_be_whole_or_broken(number: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    path.write_text(f"poll_interval: {number}\n")
    assert load(str(path), environ={}).poll_interval == float(number)
