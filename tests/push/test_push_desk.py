"""POST /RPC2 of the page: who may push, and what a push must look like. Over real HTTP."""

from __future__ import annotations

import base64
import gzip
import http.client
import logging
import xmlrpc.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from cluster_tools import a_config, a_gpu, a_snapshot
from http_serving import exchange, running

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.sources.pushed import PushInbox
from gpumon.config import HostEntry, WebConfig
from gpumon.http.push_tokens import PushTokens
from gpumon.http.server import Site
from gpumon.model import encode
from gpumon.summary import summarize
from gpumon.web.app import make_app
from gpumon.web.entrances import body_limit_of
from gpumon.web.push import MAX_BODY_BYTES, PushDesk
from gpumon.web.refused_pushes import MOST_LINES, Refusals

GPU_09 = HostEntry(name="gpu-09", source="pushed", address="push://gpu-09", host="gpu-09")
GPU_10 = HostEntry(name="gpu-10", source="pushed", address="push://gpu-10", host="gpu-10")
SNAPSHOT = a_snapshot(a_gpu())
SUMMARY = encode(summarize(SNAPSHOT)).decode()
PACKED = base64.b64encode(gzip.compress(encode(SNAPSHOT))).decode()


@pytest.fixture(autouse=True)
def short_goodbyes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is refused is not waited for: most of these are only announced."""
    monkeypatch.setattr("gpumon.http.wsgi.LINGER_SECONDS", 0.05)


@contextmanager
def server(prefix: str = "", *lines: str) -> Iterator[tuple[int, Fleet]]:
    config = a_config(GPU_09, GPU_10, web=WebConfig(prefix=prefix))
    fleet = Fleet(config)
    tokens = PushTokens(list(lines) or ["for-all", "gpu-10 only-ten"])
    ways_in = [PushDesk(PushInbox(fleet, accept_new=False), tokens, Refusals())]
    app = make_app(status=fleet.status, detail=fleet.detail, config=config, entrances=ways_in)
    limit: Callable[..., int | None] = partial(body_limit_of, ways_in)
    site = Site(name="web", app=app, binds=["127.0.0.1:0"], body_limit=limit)
    with running(site) as [port]:
        yield port, fleet


def login(name: str, token: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{token}".encode()).decode()


def post(port: int, body: bytes, path: str = "/RPC2", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    named = {"Content-Type": "text/xml", "Authorization": login("gpu-09", "for-all")}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("POST", path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def call(*parameters: object, method: str = "push") -> bytes:
    return xmlrpc.client.dumps(parameters, method).encode()


@pytest.mark.parametrize("prefix", ["", "/gpus"])
def test_the_stock_client_of_any_language_can_push(prefix: str):
    with server(prefix) as (port, fleet):
        url = f"http://gpu-09:for-all@127.0.0.1:{port}{prefix}/RPC2"
        with xmlrpc.client.ServerProxy(url) as rpc:
            again, ticket = rpc.push("", 0, "", "{}")
            taken, _ = rpc.push(ticket, 0.0, "r-1", SUMMARY, PACKED)
        assert (again, taken) == ("again", "taken")
        assert fleet.status().hosts[0].state == "fresh"
        assert fleet.detail("gpu-09").gpus == SNAPSHOT.gpus


@pytest.mark.parametrize(
    ("name", "token", "status"),
    [
        ("gpu-09", "for-all", 200),
        ("GPU-10", "only-ten", 200),
        ("gpu-09", "only-ten", 401),
        ("gpu-09", "", 401),
        ("gpu-09", "for-al", 401),
        ("", "for-all", 200),
    ],
)
def test_a_token_is_good_for_the_host_that_it_is_bound_to(name: str, token: str, status: int):
    with server() as (port, _):
        found, text = post(port, call("", 0, "", "{}"), Authorization=login(name, token))
        assert found == status
        # Without a name nobody knows whose reading it is.
        assert ("fault" in text) == (name == "")


@pytest.mark.parametrize("header", ["", "Bearer for-all", "Basic !!", "Basic", "Digest x", "\x80"])
def test_a_push_without_a_login_is_refused(header: str):
    with server() as (port, _):
        assert post(port, call("", 0, "", "{}"), Authorization=header)[0] == 401


def test_a_wrong_token_stands_on_the_row_and_once_in_the_log_and_the_token_nowhere(caplog):
    with server() as (port, fleet), caplog.at_level(logging.INFO):
        for _ in range(50):
            assert (
                post(port, call("", 0, "", "{}"), Authorization=login("gpu-09", "s3cret"))[0] == 401
            )
        [host, _] = fleet.status().hosts
        assert (host.state, host.reason_kind) == ("never", "wrong token")
        assert "token_file" in host.reason
        assert caplog.text.count("was refused") == 1
        assert "from 127.0.0.1" in caplog.text
        assert "s3cret" not in caplog.text + host.reason


def test_the_log_of_refusals_is_bounded_whoever_they_claim_to_be(caplog):
    with server() as (port, _), caplog.at_level(logging.INFO):
        for number in range(MOST_LINES + 30):
            post(port, b"", Authorization=login(f"\x1b[31mx{number}", "no"))
        assert caplog.text.count("was refused") == MOST_LINES
        assert "\x1b" not in caplog.text


REFUSED = {
    "of a web page": ({"Origin": "http://evil.example"}, 403),
    "of another type": ({"Content_Type": "text/plain"}, 415),
    "compressed": ({"Content_Encoding": "gzip"}, 415),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_push_is_refused_that_is(case: str):
    headers, status = REFUSED[case]
    with server() as (port, _):
        assert post(port, call("", 0, "", "{}"), **headers)[0] == status


FAULTY = {
    "no XML": b"{}",
    "nothing": b"",
    "entities": b'<!DOCTYPE x [<!ENTITY a "b">]>' + call("", 0, "", "{}"),
    "another method": call(method="system.multicall"),
    "an attribute": call("", 0, "", "{}", method="push.__class__"),
    "no parameters": call(),
    "a number too few": call("", 0, ""),
    "wrong types": call(1, "0", [], {}),
    "a truth for a number": call("", True, "", "{}"),
}


@pytest.mark.parametrize("case", FAULTY)
def test_what_is_no_push_is_answered_by_a_fault_without_a_traceback(case: str, caplog):
    with server() as (port, fleet), caplog.at_level(logging.INFO):
        status, text = post(port, FAULTY[case])
        assert status == 200
        assert "faultString" in text
        assert "Traceback" not in text + caplog.text
        assert fleet.record("gpu-09").answered is None


def test_a_host_that_is_not_expected_is_told_what_to_write(caplog):
    with server() as (port, _):
        text = post(port, call("", 0, "", "{}"), Authorization=login("gpu-11", "for-all"))[1]
        assert "write push://gpu-11 into hosts" in text
        assert "write push://gpu-11 into hosts" in caplog.text


def announced(size: int, name: str = "gpu-09", token: str = "for-all") -> bytes:
    """The head of a push of so many bytes."""
    return (
        f"POST /RPC2 HTTP/1.1\r\nHost: x\r\nContent-Type: text/xml\r\n"
        f"Authorization: {login(name, token)}\r\nContent-Length: {size}\r\n\r\n"
    ).encode()


def test_an_oversized_push_is_refused_before_it_is_read_and_told_once(caplog):
    with server() as (port, fleet), caplog.at_level(logging.INFO):
        for _ in range(5):
            # Not a byte of the body was sent, and the answer is there.
            answer = exchange(port, announced(MAX_BODY_BYTES + 1))
            assert b" 413 " in answer.split(b"\r\n")[0]
            assert answer.lower().count(b"connection: close") == 1
        [host, other] = fleet.status().hosts
        assert (host.state, host.reason_kind) == ("never", "failed")
        assert f"it has more than {MAX_BODY_BYTES} bytes: not read" in host.reason
        assert other.reason == "not asked yet"
        assert caplog.text.count("was refused") == 1


def test_an_oversized_push_that_does_not_announce_its_size_is_told_as_well(caplog):
    with server() as (port, fleet), caplog.at_level(logging.INFO):
        head = announced(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        body = b"%x\r\n%b\r\n" % (MAX_BODY_BYTES + 1, b"x" * (MAX_BODY_BYTES + 1))
        assert b" 413 " in exchange(port, head + body + b"0\r\n\r\n").split(b"\r\n")[0]
        assert "not read" in fleet.status().hosts[0].reason
        assert caplog.text.count("was refused") == 1


def test_who_has_no_token_can_not_make_the_server_hold_a_large_body_and_is_told_that(caplog):
    large = 100 * 1024
    with server() as (port, fleet), caplog.at_level(logging.INFO):
        assert post(port, b"x" * large)[0] == 200
        caplog.clear()
        answer = exchange(port, announced(large, token="wrong"))
        assert b" 401 " in answer.split(b"\r\n")[0]
        assert fleet.status().hosts[0].reason_kind == "wrong token"
        assert caplog.text.count("was refused") == 1
        assert post(port, b"x" * large, path="/")[0] == 413


def test_a_host_whose_own_pushes_arrive_has_a_note_of_those_that_others_tried():
    with server() as (port, fleet):
        url = f"http://gpu-09:for-all@127.0.0.1:{port}/RPC2"
        with xmlrpc.client.ServerProxy(url) as rpc:
            _, ticket = rpc.push("", 0, "", "{}")
            assert post(port, call(), Authorization=login("gpu-09", "s3cret"))[0] == 401
            assert rpc.push(ticket, 0.0, "r-1", SUMMARY, PACKED)[0] == "taken"
        [host, _] = fleet.status().hosts
        assert (host.state, host.reason) == ("fresh", None)
        [note] = [note for note in host.notes if "push" in note]
        assert note.startswith("a push under its name was refused 0s ago: wrong token: ")
        assert "from 127.0.0.1" in note
        assert "s3cret" not in note


def test_without_an_entrance_there_is_nothing_to_push_to():
    config = a_config(GPU_09)
    fleet = Fleet(config)
    app = make_app(status=fleet.status, detail=fleet.detail, config=config)
    with running(Site(name="web", app=app, binds=["127.0.0.1:0"])) as [port]:
        assert post(port, call("", 0, "", "{}"))[0] == 404
