"""Whatever is asked of agent and server, nothing changes: every route and every method."""

from __future__ import annotations

import json
import re
import xmlrpc.client

import pytest
from agent_examples import busy, gpu, host, latest
from http_serving import get, running
from msgspec import structs
from web_cluster import every_state

from gpumon.agent.app import make_app as agent_app
from gpumon.config import Config, HostEntry
from gpumon.http.server import Site
from gpumon.model import encode
from gpumon.web.app import make_app as web_app

POSTS = {
    "agent": {"/": "XML-RPC, the methods below", "/RPC2": "XML-RPC, the methods below"},
    "web": {},
}
"""Routes that take more than GET and HEAD, and what for."""

ARGUMENTS = {
    "system.methodHelp": ("poll",),
    "system.methodSignature": ("poll",),
}

OTHER_METHODS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")


def an_agent():
    known = latest(host(busy(0), gpu(1)))
    return agent_app(lambda: known, None)


def a_page():
    entries = [HostEntry(name="a", source="xmlrpc", host="a.example", port=8043)]
    return web_app(status=every_state, detail=lambda _: host(busy(0)), config=Config(hosts=entries))


APPS = {"agent": an_agent, "web": a_page}


def targets(app) -> set[str]:
    """Return an address for every route."""
    return {re.sub(r"<[^>]*(?:>\)>|>)", "x", route.rule) for route in app.routes}


@pytest.mark.parametrize("name", APPS)
def test_every_route_reads_but_for_those_that_say_why(name):
    routes = {(route.method, route.rule) for route in APPS[name]().routes}
    assert {rule for method, rule in routes if method not in ("GET", "HEAD")} == set(POSTS[name])


@pytest.mark.parametrize("name", APPS)
def test_other_methods_are_refused_everywhere_and_no_answer_is_for_other_origins(name):
    app = APPS[name]()
    with running(Site(name=name, app=app, binds=["127.0.0.1:0"])) as [port]:
        for target in sorted(targets(app)):
            for method in ("GET", *OTHER_METHODS):
                if method == "POST" and target in POSTS[name]:
                    continue
                answer = get(port, target, method, Origin="https://evil.example")
                allowed = method == "GET" and target not in POSTS[name]
                # 404: the "x" in the address is nobody's name; 302: to the page itself.
                assert answer.status in ((200, 302, 404) if allowed else (400, 404, 405)), (
                    method, target, answer.status,
                )  # fmt: skip
                for header, _ in answer.getheaders():
                    assert not header.lower().startswith("access-control-"), (method, target)


def test_every_method_of_the_agent_leaves_everything_as_it_was():
    known = latest(host(busy(0), gpu(1)))
    before = encode(structs.asdict(known))
    site = Site(name="agent", app=agent_app(lambda: known, None), binds=["127.0.0.1:0"])
    with running(site) as [port], xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}") as proxy:
        names = proxy.system.listMethods()
        assert len(names) >= 12

        def answers() -> dict[str, str]:
            told = {}
            for name in names:
                method = proxy
                for part in name.split("."):
                    method = getattr(method, part)
                told[name] = json.dumps(method(*ARGUMENTS.get(name, ())), sort_keys=True)
            return {
                name: re.sub(r'age_seconds\\?": ?[\d.]+', "", text) for name, text in told.items()
            }

        first = answers()
        assert answers() == first
    assert encode(structs.asdict(known)) == before
