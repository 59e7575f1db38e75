"""What broke other monitors' agents: hostile calls, and readers that no one meant to have."""

from __future__ import annotations

import socket
import xmlrpc.client

import pytest
from agent_examples import busy, gpu, host, instance, latest, mig, unknown
from http_serving import get, running
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.agent.answers import Answers
from gpumon.agent.app import binds, make_app
from gpumon.agent.rpc import AgentRpc
from gpumon.config import AgentConfig, Config
from gpumon.http.auth import Tokens
from gpumon.http.server import Site

KNOWN = latest(host(busy(0), gpu(1), unknown(2), mig(3, instance(0))))
RPC = AgentRpc(Answers(lambda: KNOWN))
NAMES = RPC.list_methods()

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.binary(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)


def answered(body: bytes, *, gzip: bool = False) -> int | None:
    """Ask, and return the code of the Fault; None where there was an answer."""
    told, compressed = RPC.respond(body, gzip=gzip)
    if compressed:
        return None
    try:
        values, method = xmlrpc.client.loads(told)
    except xmlrpc.client.Fault as fault:
        code, sentence = fault.faultCode, fault.faultString
    else:
        assert (len(values), method) == (1, None)
        return None
    assert len(sentence.splitlines()) == 1
    return code


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_as_a_call_are_a_fault(body):
    assert answered(body) in (-32700, -32600)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES) | st.text("asytem._", max_size=12), st.lists(VALUES, max_size=4))
def test_any_parameters_bring_an_answer_or_a_fault_and_no_failure_inside(name, parameters):
    body = xmlrpc.client.dumps(tuple(parameters), name, allow_none=True).encode()
    assert answered(body) in (None, -32700, -32600, -32601, -32602)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_call_that_was_damaged_on_the_way_brings_an_answer_or_a_fault(data):
    whole = xmlrpc.client.dumps(("r-1", [1, {"a": 2.5}]), "poll").encode()
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(len(whole), begin + 30)))
    pieces = [b"", b"<", b"</", b"&", b"&#0;", b"<nil/>", b"<value>", b"<int>9</int>", b"]]>"]
    piece = data.draw(st.sampled_from(pieces) | st.binary(max_size=5))
    body = whole[:begin] + piece + whole[end:]
    assert answered(body, gzip=data.draw(st.booleans())) in (None, -32700, -32600, -32601, -32602)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain", "Origin": "http://evil.example"}, 403),
        ({"Content-Type": "text/plain", "Origin": "null"}, 403),
        ({"Content-Type": "text/xml", "Origin": "http://127.0.0.1"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "text/xml", "Host": "evil.example"}, 421),
    ],
)
def test_a_web_page_can_not_make_a_browser_ask_the_agent(headers, status):
    site = Site(name="agent", app=make_app(lambda: KNOWN, None), binds=["127.0.0.1:0"], tls=None)
    with running(site) as [port]:
        call = xmlrpc.client.dumps((), "version").encode()
        assert get(port, "/RPC2", "POST", call, **headers).status == status


def test_a_token_counts_in_the_header_only_and_never_in_the_address():
    app = make_app(lambda: KNOWN, Tokens(["s3cret"]))
    with running(Site(name="agent", app=app, binds=["127.0.0.1:0"], tls=None)) as [port]:
        for path in ("/snapshot.json?token=s3cret", "/snapshot.json?access_token=s3cret"):
            assert get(port, path).status == 401
        assert get(port, "/snapshot.json", Authorization="Bearer s3cret").status == 200


def test_an_agent_with_defaults_is_not_reached_by_another_address():
    where, warning = binds(Config(rpc_port=0))
    assert warning is not None
    with running(Site(name="agent", app=make_app(lambda: KNOWN, None), binds=where)) as [port]:
        assert get(port, "/snapshot.json").status == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)
    opened = Config(rpc_port=0, agent=AgentConfig(allow_anonymous=True))
    where, _ = binds(opened)  # what the test would see of an agent that is open
    site = Site(name="agent", app=make_app(lambda: KNOWN, None), binds=where)
    with running(site) as [port], socket.create_connection(("127.0.0.2", port), 5) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert client.recv(8) == b"HTTP/1.1"
