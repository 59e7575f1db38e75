"""The checks that ask: this machine's agent and page, the hosts, the page through its proxy."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from agent_examples import busy, host, latest
from http_serving import running
from web_cluster import cluster as cluster_of
from web_cluster import every_state
from web_cluster import host as web_host

from gpumon.agent.app import make_app as agent_app
from gpumon.agent.latest import Latest
from gpumon.commands.doctor import cluster, daemons
from gpumon.commands.doctor.finding import Finding
from gpumon.commands.doctor.proxy import proxy
from gpumon.config import AgentConfig, Config, HostEntry, WebConfig
from gpumon.http.auth import Tokens
from gpumon.http.server import Site
from gpumon.version import __version__
from gpumon.web.app import make_app as web_app

TOKEN = "the-s3cret-token-of-this-test"


@contextmanager
def serving(app, name: str = "agent"):
    with running(Site(name=name, app=app, binds=["127.0.0.1:0"])) as [port]:
        yield port


def an_agent(age: float = 1.0, tokens: Tokens | None = None, **changes):
    sample = host(busy(0), **{"agent_version": __version__, "time": time.time(), **changes})
    known = latest(sample, age=age)
    return agent_app(lambda: known, tokens)


def nobody() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def local(port: int, tokens: Path | None = None) -> Config:
    return Config(rpc_port=port, token_file=tokens, agent=AgentConfig(bind="127.0.0.1"))


def agent(config: Config, *, needed: bool = True) -> list[Finding]:
    return list(daemons.agent(config, needed=needed))


def token_file(folder: Path, text: str = TOKEN) -> Path:
    path = folder / "token"
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


def levels(found: list[Finding]) -> list[str]:
    return [finding.level for finding in found]


def test_an_agent_that_works_is_told_with_the_age_of_its_sample(tmp_path):
    with serving(an_agent(tokens=Tokens([TOKEN]))) as port:
        found = agent(local(port, token_file(tmp_path)))
    assert levels(found) == ["ok"]
    assert f"answers on port {port}, its sample is 1" in found[0].text


def test_an_agent_with_an_old_sample_or_another_version_or_another_token_is_told(tmp_path):
    with serving(an_agent(age=900.0)) as port:
        assert levels(agent(local(port))) == ["fault"]
    with serving(an_agent(agent_version="0.0.1")) as port:
        found = agent(local(port))
    assert levels(found) == ["ok", "warning"]
    assert f"version 0.0.1 runs, {__version__} is installed" in found[1].text
    with serving(an_agent(tokens=Tokens(["another"]))) as port:
        found = agent(local(port, token_file(tmp_path)))
    assert levels(found) == ["ok", "fault"]
    assert TOKEN not in repr(found)


def test_no_agent_is_a_fault_where_there_should_be_one():
    config = local(nobody())
    assert levels(agent(config)) == ["fault"]
    assert levels(agent(config, needed=False)) == ["warning"]
    assert "nothing listens" in agent(config)[0].text


def test_something_else_on_the_port_is_named_as_such():
    def other(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/html")])
        return [b"<html>hello</html>"]

    with serving(other) as port:
        found = agent(local(port))
        web = list(daemons.page(Config(web_port=port), needed=True))
    assert levels(found) == levels(web) == ["fault"]
    assert "something else than gpumon" in found[0].text


def test_a_port_that_never_answers_ends_in_time(monkeypatch):
    monkeypatch.setattr(daemons, "SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        found = agent(local(silent.getsockname()[1]))
    assert levels(found) == ["fault"]
    assert "does not answer" in found[0].text


def a_page(**web):
    return web_app(status=every_state, detail=lambda _: None, config=Config(web=WebConfig(**web)))


def test_a_page_that_works_is_told_with_its_hosts():
    with serving(a_page(), "web") as port:
        found = list(daemons.page(Config(web_port=port), needed=True))
    assert levels(found) == ["ok"]
    assert "hosts fresh" in found[0].text


# ---- The hosts. ----


def entry(name: str, port: int) -> HostEntry:
    return HostEntry(
        name=name, source="xmlrpc", address=f"127.0.0.1:{port}", host="127.0.0.1", port=port
    )


def test_hosts_are_asked_once_and_each_trouble_is_told_of_its_host():
    late = an_agent(time=time.time() - 3600.0)
    with (
        serving(an_agent()) as good,
        serving(late) as behind,
        serving(an_agent(agent_version="0.0.1")) as old,
    ):
        config = Config(
            rpc_timeout=2.0,
            hosts=[
                entry("good", good),
                entry("behind", behind),
                entry("old", old),
                entry("gone", nobody()),
                HostEntry(name="self", source="self", address="self"),
            ],
        )
        found = list(cluster.hosts(config))
    assert [(f.check, f.level) for f in found] == [
        ("hosts", "ok"),
        ("hosts", "ok"),
        ("hosts", "fault"),
        ("clock of host", "warning"),
        ("version of host", "warning"),
    ]
    assert found[0].text == "3 of 4 answer"
    assert found[1].text == "not asked, this machine, which gpumon doctor --agent looks at: self"
    assert found[2].text.startswith("gone: refused: nothing listens on")
    assert "behind this machine's" in found[3].text
    assert found[3].text.startswith("behind: ")
    assert found[4].text == f"old: gpumon 0.0.1, here {__version__}"


def pushed(name: str) -> HostEntry:
    return HostEntry(name=name, source="pushed", address=f"push://{name}", host=name)


def test_hosts_that_nobody_can_ask_are_named_with_why():
    config = Config(hosts=[HostEntry(name="self", source="self", address="self"), pushed("gpu-9")])
    assert [(f.level, f.text) for f in cluster.hosts(config)] == [
        ("ok", "not asked, this machine, which gpumon doctor --agent looks at: self"),
        ("ok", "not asked, pushing by itself, and the page shows when it did last: gpu-9"),
    ]
    [many] = cluster.hosts(Config(hosts=[pushed(f"gpu-{n}") for n in range(1000)]))
    assert many.text.endswith(", gpu-19 and 980 more")


TROUBLES = {
    "says what": ({"errors": ["no driver is loaded. Load it"]}, "no driver is loaded", "Load it"),
    "and how many": ({"errors": ["one", "two", "three"]}, "one (and 2 more)", None),
    "no GPU": ({"gpu_count": 0, "gpus": []}, "the driver works, but counts no GPU", None),
    "no count": ({"gpu_count": None}, "it does not tell how many GPUs it has", None),
}


@pytest.mark.parametrize("case", TROUBLES)
def test_a_host_that_answers_with_errors_is_a_warning_that_says_what(case: str):
    changes, words, cure = TROUBLES[case]
    with serving(an_agent(**changes)) as port:
        found = list(cluster.hosts(Config(hosts=[entry("gpu-01", port)])))
    assert levels(found) == ["ok", "warning"]
    assert found[1].text == f"gpu-01 answers, but: {words}"
    assert found[1].cure == (cure or "Run gpumon doctor on that host")


def test_a_host_whose_sampler_hangs_or_has_not_begun_is_a_warning_however_it_answers():
    stuck = latest(host(busy(0)), age=900.0, sampler_error="NVML does not answer since 09:12")
    begun = Latest(revision="x-0", interval=5.0)
    old = latest(host(busy(0)), age=900.0)
    with (
        serving(agent_app(lambda: stuck, None)) as first,
        serving(agent_app(lambda: begun, None)) as second,
        serving(agent_app(lambda: old, None)) as third,
    ):
        entries = [entry("stuck", first), entry("begun", second), entry("old", third)]
        found = [f for f in cluster.hosts(Config(hosts=entries)) if "clock" not in f.check]
    assert [f.text for f in found if f.level == "warning" and f.check == "hosts"] == [
        "stuck answers, but: NVML does not answer since 09:12",
        "begun answers, but: no sample has been taken yet",
        "old answers, but: its last sample is 15m old",
    ]


def another_server(port: int) -> HostEntry:
    return HostEntry(
        name="north",
        source="gpumon",
        address=f"gpumon+http://127.0.0.1:{port}",
        host="127.0.0.1",
        port=port,
    )


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ([], "this gpumon server lists no hosts"),
        (
            [web_host("a", state="stale"), web_host("b", state="stale")],
            "has no fresh reading of any of its 2 hosts",
        ),
        ([web_host("a", state="stale"), web_host("b")], None),
    ],
)
def test_another_server_that_has_nothing_to_show_is_a_warning(hosts, words):
    app = web_app(status=lambda: cluster_of(hosts), detail=lambda _: None, config=Config())
    with serving(app, "web") as port:
        found = list(cluster.hosts(Config(hosts=[another_server(port)])))
    assert levels(found) == (["ok"] if words is None else ["ok", "warning"])
    assert words is None or words in found[1].text


def test_hosts_that_hang_cost_one_timeout_together():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(256)
        port = silent.getsockname()[1]
        config = Config(rpc_timeout=0.5, hosts=[entry(f"h{n}", port) for n in range(50)])
        began = time.monotonic()
        found = list(cluster.hosts(config))
    assert time.monotonic() - began < cluster.seconds_needed(config)
    assert len(found) == cluster.MOST_TOLD + 1
    assert found[-1].text == "and 30 more hosts like these"
    assert "timed out" in found[0].text


def test_a_token_file_that_can_not_be_used_is_one_fault(tmp_path):
    config = Config(hosts=[entry("a", 1)], token_file=tmp_path / "missing")
    assert levels(list(cluster.hosts(config))) == ["fault"]


# ---- The proxy. ----


def seen(url: str) -> list[Finding]:
    return list(proxy(url))


def test_a_page_that_is_reached_as_it_is_has_no_complaint():
    with serving(a_page(), "web") as port:
        assert levels(seen(f"http://127.0.0.1:{port}/")) == ["ok"]
    with serving(a_page(prefix="/gpus"), "web") as port:
        assert levels(seen(f"http://127.0.0.1:{port}/gpus/")) == ["ok"]


def through(app, **changes: str | None):
    """Return `app` behind a proxy that changes headers of its answers; None drops one."""

    def changed(environ, start_response):
        def start(status, headers, exc_info=None):
            named = {name.lower().replace("-", "_"): (name, value) for name, value in headers}
            for name, value in changes.items():
                named.pop(name, None)
                if value is not None:
                    named[name] = (name.replace("_", "-"), value)
            return start_response(status, list(named.values()), exc_info)

        return app(environ, start)

    return changed


def test_a_proxy_that_opens_the_page_or_drops_its_headers_is_told():
    opened = through(a_page(), access_control_allow_origin="*")
    with serving(opened, "web") as port:
        found = seen(f"http://127.0.0.1:{port}")
    assert levels(found) == ["ok", "fault"]
    dropped = through(a_page(), content_security_policy=None, etag=None)
    with serving(dropped, "web") as port:
        found = seen(f"http://127.0.0.1:{port}")
    assert levels(found) == ["ok", "warning"]
    assert "Content-Security-Policy, ETag" in found[1].text


def test_a_page_that_does_not_go_by_this_name_says_where_to_add_it():
    with serving(a_page(hostnames=["gpus.lab.org"]), "web") as port:
        assert levels(seen(f"http://localhost:{port}/")) == ["ok"]

    def refuses(environ, start_response):
        start_response("421 Misdirected", [])
        return [b""]

    with serving(refuses, "web") as port:
        found = seen(f"http://127.0.0.1:{port}/")
    assert "web.hostnames" in (found[0].cure or "")


@pytest.mark.parametrize(
    ("status", "level"), [("401 No", "ok"), ("302 Found", "warning"), ("502 Bad", "fault")]
)
def test_what_else_a_proxy_may_answer_has_its_own_line(status, level):
    def answers(environ, start_response):
        start_response(status, [("Location", "https://elsewhere.example/")])
        return [b"hello"]

    with serving(answers, "web") as port:
        assert levels(seen(f"http://127.0.0.1:{port}/")) == [level]


@pytest.mark.parametrize(
    "url", ["gpus.lab.org", "ftp://x/", "https://", "http://x:99999/", "http://["]
)
def test_what_is_no_address_is_refused(url):
    assert levels(seen(url)) == ["fault"]


def test_a_login_in_the_address_is_refused_and_not_repeated():
    found = seen("http://me:s3cret@127.0.0.1:1/")
    assert levels(found) == ["fault"]
    assert "s3cret" not in repr(found)


def test_a_port_where_nothing_listens_is_a_fault():
    assert levels(seen(f"http://127.0.0.1:{nobody()}/")) == ["fault"]
    assert msgspec.json.encode(seen(f"http://127.0.0.1:{nobody()}/"))
