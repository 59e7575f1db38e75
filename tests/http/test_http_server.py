"""The HTTP server over real sockets: what WSGI applications may rely on."""

from __future__ import annotations

import contextlib
import http.client
import logging
import subprocess
import sys
import threading
import time

import pytest
from http_serving import connect, exchange, get, running

from gpumon.http import connections, server, wsgi
from gpumon.http.server import Site


def echo(environ, start_response):
    """Tell what arrived; the path names the status to answer with."""
    status = {"/304": "304 Not Modified", "/204": "204 No Content"}.get(
        environ["PATH_INFO"], "200 OK"
    )
    body = "\n".join(
        [
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ["QUERY_STRING"],
            environ.get("HTTP_X_TWICE", ""),
            environ.get("CONTENT_LENGTH", ""),
            environ["wsgi.input"].read().decode("latin-1"),
        ]
    ).encode("latin-1")
    headers = [("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
    start_response(status, [*headers, ("Content-Length", str(len(body)))])
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" or status[0] != "2" else body]


def site(app=echo, **changes) -> Site:
    return Site(**{"name": "test", "app": app, "binds": ["127.0.0.1:0"], **changes})


def test_an_answer_carries_what_the_application_gave_and_no_server_header():
    with running(site()) as [port]:
        response = get(port, "/a%C3%BC?q=1", X_Twice="x")
    assert response.status == 200
    assert response.body.decode("latin-1").splitlines()[:4] == ["GET", "/a\xc3\xbc", "q=1", "x"]
    assert response.headers.get_all("Set-Cookie") == ["a=1", "b=2"]
    assert response.headers["Server"] is None


@pytest.mark.parametrize("request_line", ["GET /304", "GET /204", "HEAD /", "HEAD /304"])
def test_an_answer_without_a_body_comes_at_once_and_keeps_the_connection(request_line):
    method, path = request_line.split()
    with running(site()) as [port]:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        client.connect()
        kept = client.sock
        for _ in range(3):
            client.request(method, path)
            response = client.getresponse()
            assert response.read() == b""
            assert response.status == (int(path[1:]) if path != "/" else 200)
            assert client.sock is kept, "the server closed the connection"
        client.request("GET", "/")
        assert client.getresponse().read().startswith(b"GET")
        client.close()


def test_answers_on_a_kept_connection_do_not_wait_for_acknowledgements():
    with running(site()) as [port]:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        began = time.monotonic()
        for _ in range(20):
            client.request("POST", "/", b"x")
            client.getresponse().read()
        assert time.monotonic() - began < 0.4  # 20 x 40 ms with Nagle's algorithm
        client.close()


def test_the_length_in_a_head_answer_is_that_of_the_get_answer():
    with running(site()) as [port]:
        assert get(port, "/", "HEAD").headers["Content-Length"] == "10"
        assert get(port, "/304").headers["Content-Length"] is None


def test_a_query_that_is_not_ascii_harms_nobody():
    with running(site()) as [port]:
        assert b"\nuser=%C3%BC\n" in get(port, "/?user=%C3%BC").body
        raw = "GET /?user=ü HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        assert exchange(port, raw).startswith(b"HTTP/1.1 400 ")
        assert get(port).status == 200


def test_a_header_sent_twice_arrives_joined_and_one_with_an_underscore_not_at_all():
    request = b"GET / HTTP/1.1\r\nHost: x\r\nX-Twice: a\r\nX-Twice: b\r\nX_Twice: c\r\n\r\n"
    with running(site()) as [port]:
        answer = exchange(port, request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert b"\na,b\n" in answer


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it():
    with running(site()) as [port], connect(port) as client:
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"abc")
        received = b""
        while chunk := client.recv(1000):
            received += chunk
        assert received.endswith(b"\n3\nabc")


def test_a_chunked_body_arrives_whole_with_its_length():
    request = (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    with running(site()) as [port]:
        assert exchange(port, request).endswith(b"\n5\nabcde")


def test_a_body_over_the_limit_is_refused_by_its_announcement_alone(monkeypatch):
    monkeypatch.setattr(wsgi, "LINGER_SECONDS", 0.1)
    with running(site(max_body_bytes=1000)) as [port]:
        answer = exchange(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b"the body of the request is larger than 1000 bytes\n")
        assert get(port, "/", "POST", b"x" * 1000).status == 200


def test_a_client_that_sends_fifty_megabytes_can_read_why_they_were_refused():
    with running(site()) as [port]:
        response = get(port, "/", "POST", b"x" * 50_000_000)
    assert response.status == 413
    assert b"larger than 65536 bytes" in response.body


def test_a_chunked_body_over_the_limit_is_refused_while_it_comes(monkeypatch):
    monkeypatch.setattr(wsgi, "LINGER_SECONDS", 0.1)
    request = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with running(site(max_body_bytes=1000)) as [port]:
        answer = exchange(port, request + 2 * (b"300\r\n" + b"x" * 0x300 + b"\r\n"))
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_client_that_goes_on_sending_a_refused_body_is_cut(monkeypatch):
    monkeypatch.setattr(wsgi, "LINGER_SECONDS", 0.05)
    with running(site(max_body_bytes=100)) as [port], connect(port, timeout=4) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 4:
                client.sendall(b"1\r\nx\r\n" * 20_000)
        assert time.monotonic() - began < 3


def test_a_request_head_over_the_limit_is_refused():
    with running(site()) as [port]:
        answer = exchange(port, b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 40_000)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert get(port).status == 200


def test_a_failing_application_is_logged_once_and_tells_the_client_nothing(caplog):
    def broken(environ, start_response):
        raise RuntimeError("secret /etc/path")

    with running(site(broken, name="agent")) as [port]:
        response = get(port, "/where")
    assert response.status == 500
    assert response.body == b"the agent failed to answer this request; its log says why\n"
    [record] = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert "agent: GET '/where' failed" in record.getMessage()
    assert record.exc_info is not None


def test_an_application_that_never_starts_its_response_is_a_failing_one():
    with running(site(lambda environ, start_response: [])) as [port]:
        assert get(port).status == 500


def test_a_body_that_never_comes_ends_in_a_sentence(monkeypatch):
    monkeypatch.setattr(wsgi, "BODY_SECONDS", 0.2)
    monkeypatch.setattr(wsgi, "LINGER_SECONDS", 0.1)
    with running(site()) as [port]:
        answer = exchange(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_body_that_drips_does_not_outlast_its_deadline(monkeypatch):
    monkeypatch.setattr(wsgi, "BODY_SECONDS", 0.5)
    monkeypatch.setattr(wsgi, "LINGER_SECONDS", 0.1)
    with running(site()) as [port], connect(port) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        began = time.monotonic()
        with contextlib.suppress(OSError):
            for _ in range(200):
                client.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - began < 5


def test_a_silent_connection_is_closed_after_the_keep_alive_time(monkeypatch):
    monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", 0.3)
    with running(site()) as [port], connect(port) as silent, connect(port) as half:
        half.sendall(b"GET / HTTP/1.1\r\nHo")
        assert silent.recv(10) == b""
        assert half.recv(10) == b""


def test_a_client_that_does_not_read_its_answer_is_cut(monkeypatch):
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.3)

    def large(environ, start_response):
        start_response("200 OK", [])
        return [b"x" * 30_000_000]

    with running(site(large)) as [port], connect(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(1.0)  # the client's own slowness is the thing under test
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := client.recv(1_000_000):
                received += len(chunk)
        assert received < 30_000_000


def test_when_all_connections_are_taken_the_longest_idle_one_makes_room(monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 5)
    with running(site()) as [port]:
        idle = [connect(port) for _ in range(5)]
        time.sleep(0.1)
        assert get(port).status == 200
        assert idle[0].recv(1) == b""
        idle[4].settimeout(0.1)
        with pytest.raises(TimeoutError):
            idle[4].recv(1)
        for client in idle:
            client.close()


def test_a_client_that_leaves_takes_its_connection_with_it(monkeypatch):
    kept = []

    class Counted(connections.Connections):
        def __init__(self, limit):
            super().__init__(limit)
            kept.append(self)

    monkeypatch.setattr(server, "Connections", Counted)
    with running(site()) as [port]:
        for _ in range(20):
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
                client.request("GET", "/")
                assert client.getresponse().read()
        end = time.monotonic() + 5
        while len(kept[0]):
            assert time.monotonic() < end, f"{len(kept[0])} connections are left"
            time.sleep(0.01)


def test_connections_in_work_are_never_cut_to_make_room(monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    with running(site()) as [port]:
        working = [connect(port) for _ in range(2)]
        for client in working:
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
        time.sleep(0.1)
        with pytest.raises(OSError):  # noqa: PT011  reset or closed, as it happens
            get(port)
        working[0].sendall(b"b")
        assert working[0].recv(1000).startswith(b"HTTP/1.1 200 ")
        for client in working:
            client.close()


def test_many_calls_at_once_use_a_bounded_number_of_threads():
    seen: set[str] = set()

    def slow(environ, start_response):
        seen.add(threading.current_thread().name)
        time.sleep(0.02)
        start_response("200 OK", [])
        return [b"ok"]

    with running(site(slow)) as [port]:
        callers = [threading.Thread(target=get, args=(port,)) for _ in range(60)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert 1 < len(seen) <= server.THREADS


def test_several_sites_share_one_loop():
    def named(name):
        def app(environ, start_response):
            start_response("200 OK", [])
            return [name]

        return app

    with running(site(named(b"a")), site(named(b"b"))) as [first, second]:
        assert get(first).body == b"a"
        assert get(second).body == b"b"


def test_a_call_in_work_is_answered_before_the_server_stops():
    entered = threading.Event()

    def slow(environ, start_response):
        entered.set()
        time.sleep(0.3)
        start_response("200 OK", [])
        return [b"done"]

    answers = []
    with running(site(slow)) as [port]:
        caller = threading.Thread(target=lambda: answers.append(get(port).body))
        caller.start()
        assert entered.wait(5)
    caller.join(5)
    assert answers == [b"done"]


def test_half_a_body_does_not_hold_up_the_stop(monkeypatch):
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.2)
    with running(site()) as [port]:
        client = connect(port)
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
        time.sleep(0.1)
        began = time.monotonic()
    assert time.monotonic() - began < 3
    client.close()


def test_a_web_socket_is_refused():
    request = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with running(site()) as [port], connect(port) as client:
        client.sendall(request)
        assert client.recv(1000).startswith(b"HTTP/1.1 403 ")


def test_an_offer_of_http_2_is_answered_in_http_1():
    offer = (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
    )
    with running(site()) as [port], connect(port) as client:
        client.sendall(offer)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nHTTP2-Settings: !\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    ],
)
def test_garbage_costs_its_own_connection_and_no_log_line(garbage, caplog):
    with running(site()) as [port]:
        with connect(port) as client:
            client.sendall(garbage)
            client.shutdown(1)
            while client.recv(1000):
                pass
        assert get(port).status == 200
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.system
@pytest.mark.parametrize("kind", ["silent", "half a head", "half a body", "a byte of a large body"])
def test_two_hundred_slow_clients_delay_nobody(kind):
    said = {
        "silent": b"",
        "half a head": b"GET / HTTP/1.1\r\nHost: x\r\nX-",
        "half a body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
        "a byte of a large body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\na",
    }[kind]
    with running(site()) as [port]:
        clients = [connect(port) for _ in range(200)]
        for client in clients:
            client.sendall(said)
        time.sleep(0.2)
        took = []
        for _ in range(50):
            began = time.monotonic()
            assert get(port).status == 200
            took.append(time.monotonic() - began)
        assert sorted(took)[-2] < 0.1, took
        for client in clients:
            client.close()


FEW_FILES = """
import asyncio, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))
from gpumon.http.server import Site, open_sockets, serve, stop_on_signals
def app(environ, start_response):
    start_response("200 OK", [])
    return [b"ok"]
async def main():
    site = Site(name="web", app=app, binds=["127.0.0.1:0"])
    print(open_sockets(site)[0], flush=True)
    await serve([site], stop_on_signals())
asyncio.run(main())
"""


@pytest.mark.system
def test_more_silent_clients_than_open_files_delay_nobody():
    command = [sys.executable, "-c", FEW_FILES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as service:
        clients = []
        try:
            port = int(service.stdout.readline().decode().rpartition(":")[2])
            for _ in range(9):
                clients += [connect(port) for _ in range(100)]
                began = time.monotonic()
                assert get(port).body == b"ok"
                assert time.monotonic() - began < 0.5
        finally:
            service.terminate()
            assert service.wait(10) == 0
            assert service.stderr.read() == b""
            for client in clients:
                client.close()
