"""Another configuration for the sources: what is asked as before keeps its way, all or nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh
import msgspec
import pytest
from certificates import Issued, issue
from cluster_tools import Agent, a_config, a_gpu, a_snapshot, an_entry, listening

from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.sources.build import Sources
from gpumon.config import Config, HostEntry, SshConfig, TlsConfig
from gpumon.errors import SetupError
from gpumon.http.tls import server_context

SUPERVISOR = Supervisor(interval=5.0)


def an_ssh_entry(name: str, **fields: object) -> HostEntry:
    entry = HostEntry(name=name, source="ssh", address=f"ssh://{name}", host=name, port=22)
    return msgspec.structs.replace(entry, **fields)


def changed(sources: Sources, config: Config) -> set[str]:
    """Go over to a configuration; return the hosts that are asked by a new source."""
    before = sources.by_name
    sources.prepared(config, SUPERVISOR)()
    return {name for name, source in sources.by_name.items() if before.get(name) is not source}


def test_only_what_leads_elsewhere_makes_a_host_another_one():
    one, two = an_entry("one", 1), an_entry("two", 2)
    sources = Sources(a_config(one, two))
    assert changed(sources, a_config(one, two)) == set()
    drained = msgspec.structs.replace(one, drained=True, labels={"room": "b12"})
    assert changed(sources, a_config(two, drained, poll_interval=1.0)) == set()
    assert changed(sources, a_config(two, an_entry("one", 3))) == {"one"}
    assert changed(sources, a_config(an_entry("one", 3), an_entry("three", 4))) == {"three"}
    assert list(sources.by_name) == ["one", "three"]


def test_another_deadline_reaches_every_host_and_keeps_the_connections():
    entries = [
        an_entry("agent", 1),
        HostEntry(name="self", source="self", address="self"),
        HostEntry(name="north", source="gpumon", address="north", host="north", port=1),
    ]
    sources = Sources(a_config(*entries), supervisor=SUPERVISOR)
    assert changed(sources, a_config(*entries)) == set()
    # These two hold no connection to lose, and go by the deadline themselves.
    assert changed(sources, a_config(*entries, rpc_timeout=7.0)) == {"self", "north"}
    assert sources._connections.access.timeout == 7.0


def test_another_sampler_of_this_machine_is_the_one_that_is_asked():
    config = a_config(HostEntry(name="self", source="self", address="self"))
    sources = Sources(config, supervisor=Supervisor(interval=5.0))
    assert changed(sources, config) == {"self"}
    assert changed(sources, config) == set()


def test_hosts_over_ssh_log_in_anew_with_another_key_or_user_only(tmp_path: Path):
    for name in ("old", "new"):
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(tmp_path / name))
        (tmp_path / name).chmod(0o600)
    (tmp_path / "known").write_text("")
    ssh = SshConfig(user="gpumon", key_file=tmp_path / "old", known_hosts=tmp_path / "known")
    entries = [an_ssh_entry("one"), an_ssh_entry("two", user="bob"), an_entry("three", 1)]
    config = a_config(*entries, ssh=ssh)
    sources = Sources(config)
    assert changed(sources, config) == set()
    assert changed(sources, msgspec.structs.replace(config, rpc_timeout=9.0)) == set()
    assert sources._logins is not None
    assert sources._logins.seconds == 9.0
    shutil.copy(tmp_path / "new", tmp_path / "old")  # the same name, another key
    assert changed(sources, config) == {"one", "two"}
    other = msgspec.structs.replace(ssh, user="alice")
    assert changed(sources, msgspec.structs.replace(config, ssh=other)) == {"one", "two"}
    moved = [entries[0], an_ssh_entry("two", user="carol"), entries[2]]
    assert changed(sources, a_config(*moved, ssh=other)) == {"two"}


def test_a_configuration_that_can_not_be_used_changes_nothing(tmp_path: Path):
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "token").chmod(0o600)
    config = a_config(an_entry("one", 1), token_file=tmp_path / "token")
    sources = Sources(config)
    before, access = sources.by_name, sources._connections.access
    broken = [
        a_config(an_entry("two", 2), token_file=tmp_path / "missing"),
        a_config(an_entry("two", 2, tls=True), tls=TlsConfig(ca=tmp_path / "missing")),
        a_config(an_ssh_entry("two"), ssh=SshConfig(key_file=tmp_path / "missing")),
    ]
    for wrong in broken:
        with pytest.raises(SetupError):
            sources.prepared(wrong, None)
        assert sources.by_name == before
        assert sources._connections.access is access


def with_agent(
    check: Callable[[Agent, int], Awaitable[None]], tls: TlsConfig | None = None
) -> None:
    async def run() -> None:
        agent = Agent(a_snapshot(a_gpu()))
        context = None if tls is None else server_context(tls)
        async with listening(agent, tls=context) as port:
            await check(agent, port)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_new_token_goes_over_the_connection_that_there_is(tmp_path: Path):
    path = tmp_path / "token"

    async def check(agent: Agent, port: int) -> None:
        path.write_text("first\n")
        path.chmod(0o600)
        config = a_config(an_entry("one", port), token_file=path)
        sources = Sources(config)
        await sources.by_name["one"].poll()
        assert sources.prepared(config, None)() is False
        path.write_text("second\n")
        again = sources.prepared(config, None)
        await sources.by_name["one"].poll()  # not before it is put to use
        assert again() is True
        await sources.by_name["one"].poll()
        told = [headers["authorization"] for headers, _ in agent.requests]
        assert told == ["Bearer first", "Bearer first", "Bearer second"]
        assert agent.connections == 1
        await sources.close()

    with_agent(check)


def test_another_authority_or_certificate_ends_the_connections_under_the_old_one(tmp_path: Path):
    authority = issue(tmp_path, "authority")
    other = issue(tmp_path, "other")
    host = issue(tmp_path, "host", authority)
    ours, renewed = (issue(tmp_path, name, authority) for name in ("ours", "renewed"))

    async def check(agent: Agent, port: int) -> None:
        entry = an_entry("one", port, tls=True)
        mine = tmp_path / "mine.pem"
        key = tmp_path / "mine.key"

        def show(issued: Issued) -> None:
            shutil.copy(issued.cert, mine)
            shutil.copy(issued.key, key)

        show(ours)
        config = a_config(entry, tls=TlsConfig(cert=mine, key=key, ca=authority.cert))
        sources = Sources(config)

        async def connections_after_a_poll() -> int:
            await sources.by_name["one"].poll()
            return agent.connections

        assert await connections_after_a_poll() == 1
        assert sources.prepared(config, None)() is False
        assert await connections_after_a_poll() == 1
        show(renewed)
        assert sources.prepared(config, None)() is True
        assert await connections_after_a_poll() == 2
        both = tmp_path / "both.pem"
        both.write_text(authority.cert.read_text() + other.cert.read_text())
        wider = a_config(entry, tls=TlsConfig(cert=mine, key=key, ca=both))
        assert sources.prepared(wider, None)() is True
        assert await connections_after_a_poll() == 3
        assert await connections_after_a_poll() == 3
        await sources.close()

    with_agent(check, TlsConfig(cert=host.cert, key=host.key))


def test_a_poll_under_way_while_the_authority_changes_is_finished_and_its_connection_not_kept(
    tmp_path: Path,
):
    authority, other = issue(tmp_path, "authority"), issue(tmp_path, "other")
    host = issue(tmp_path, "host", authority)
    both = tmp_path / "both.pem"
    both.write_text(authority.cert.read_text() + other.cert.read_text())

    async def check(agent: Agent, port: int) -> None:
        entry = an_entry("one", port, tls=True)
        sources = Sources(a_config(entry, tls=TlsConfig(ca=authority.cert)))
        source = sources.by_name["one"]
        await source.poll()
        under_way = asyncio.create_task(source.poll())
        await asyncio.sleep(0)  # it has taken the kept connection
        sources.prepared(a_config(entry, tls=TlsConfig(ca=both)), None)()
        assert sources.by_name["one"] is source
        await under_way
        assert agent.connections == 1
        await source.poll()
        assert agent.connections == 2
        await sources.close()

    with_agent(check, TlsConfig(cert=host.cert, key=host.key))


def test_a_host_that_is_not_asked_any_more_has_no_connection_left():
    async def check(agent: Agent, port: int) -> None:
        sources = Sources(a_config(an_entry("one", port)))
        gone = sources.by_name["one"]
        await gone.poll()
        assert len(sources._connections._open) == 1
        sources.prepared(a_config(), None)()
        await gone.close()
        await asyncio.sleep(0)  # the transport closes in the loop's next turn
        assert not sources._connections._open
        await sources.close()

    with_agent(check)
