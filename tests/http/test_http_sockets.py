"""Listening: every address form, and a sentence for everything that can be wrong."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import sys

import pytest
from http_serving import running

from gpumon.errors import StartError
from gpumon.http import sockets
from gpumon.http.server import Site, open_sockets
from gpumon.http.sockets import open_listeners, parse_bind


def hello(environ, start_response):
    start_response("200 OK", [])
    return [environ["REMOTE_ADDR"].encode()]


def ask(host: str, port: int) -> bytes:
    with socket.create_connection((host, port), 5) as client:
        client.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
        received = bytearray()
        while chunk := client.recv(1000):
            received += chunk
    return bytes(received).rpartition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("bind", "host", "port"),
    [
        ("127.0.0.1:8043", "127.0.0.1", 8043),
        ("[::1]:8043", "::1", 8043),
        ("[::]:0", "::", 0),
        ("gpu7.example:65535", "gpu7.example", 65535),
    ],
)
def test_a_bind_is_taken_apart(bind, host, port):
    assert parse_bind(bind) == (host, port)


@pytest.mark.parametrize(
    "bind", ["", "8043", ":8043", "host", "host:", "::1:8043", "h:x", "h:65536", "h:-1", "h:²"]
)
def test_what_is_no_bind_is_refused_with_the_forms_that_are(bind):
    with pytest.raises(StartError, match=r"expected HOST:PORT, such as .*\[::1\]:8043"):
        parse_bind(bind)


def test_ipv6_is_served():
    with running(Site(name="web", app=hello, binds=["[::1]:0"])) as [port]:
        assert ask("::1", port) == b"::1"


def test_the_ipv6_wildcard_alone_serves_ipv4_as_well_under_its_usual_address():
    with running(Site(name="web", app=hello, binds=["[::]:0"])) as [port]:
        assert ask("::1", port) == b"::1"
        assert ask("127.0.0.1", port) == b"127.0.0.1"


def test_both_wildcards_can_stand_side_by_side():
    [first] = open_listeners("web", ["0.0.0.0:0"])
    port = first.getsockname()[1]
    first.close()
    opened = open_listeners("web", [f"0.0.0.0:{port}", f"[::]:{port}"])
    assert len(opened) == 2
    for listener in opened:
        listener.close()


def test_a_name_is_served_on_all_its_addresses_with_one_port():
    with running(Site(name="web", app=hello, binds=["localhost:0"])) as [port]:
        assert ask("127.0.0.1", port) == b"127.0.0.1"


def test_a_name_with_addresses_of_both_kinds_is_served_on_each(monkeypatch):
    def lookup(*_: object, **__: object) -> list[object]:
        stream = (socket.SOCK_STREAM, 6, "")
        return [
            (socket.AF_INET6, *stream, ("::1", 0, 0, 0)),
            (socket.AF_INET, *stream, ("127.0.0.1", 0)),
            (socket.AF_INET, *stream, ("127.0.0.2", 0)),
        ]

    monkeypatch.setattr(sockets.socket, "getaddrinfo", lookup)
    site = Site(name="web", app=hello, binds=["gpu7.example:0"])
    open_sockets(site)
    monkeypatch.undo()
    with running(site) as [port]:
        assert ask("::1", port) == b"::1"
        for address in ("127.0.0.1", "127.0.0.2"):
            assert ask(address, port) == b"127.0.0.1", "where it came from"


def test_the_chosen_port_is_told_and_kept():
    site = Site(name="web", app=hello, binds=["127.0.0.1:0"])
    first = open_sockets(site)
    assert first == open_sockets(site)
    assert first[0].startswith("127.0.0.1:")
    assert not first[0].endswith(":0")
    for listener in site.sockets:
        listener.close()


def test_a_port_in_use_names_address_holder_and_the_key_to_change():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError) as caught:
            open_listeners("agent", [f"127.0.0.1:{port}"])
    assert f"port {port} is in use on 127.0.0.1 by this process itself" in str(caught.value)
    assert "set rpc_port in config.yml to another port" in str(caught.value)


def test_a_port_that_another_process_has_names_that_process():
    code = (
        "import socket; taken = socket.create_server(('127.0.0.1', 0));"
        "print(taken.getsockname()[1], flush=True); input()"
    )
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
        port = int(other.stdout.readline())
        with pytest.raises(StartError, match=rf"port {port} .* by process {other.pid} \("):
            open_listeners("web", [f"127.0.0.1:{port}"])
        other.stdin.write(b"\n")


def test_when_one_address_fails_the_others_are_given_up():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free, port = "127.0.0.1:0", taken.getsockname()[1]
        with pytest.raises(StartError):  # an unclosed socket would be a warning, and so a failure
            open_listeners("web", [free, f"127.0.0.1:{port}"])


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(StartError, match=r"can't listen on 192.0.2.1: this machine has no such"):
        open_listeners("web", ["192.0.2.1:0"])


def test_a_name_that_leads_nowhere_is_refused():
    with pytest.raises(StartError, match=r"'no.such.invalid': the name leads to no address"):
        open_listeners("web", ["no.such.invalid:1"])


def test_a_port_below_1024_without_the_right_to_it_is_explained():
    error = OSError(errno.EACCES, "Permission denied")
    sentence = sockets._sentence("web", "0.0.0.0", "0.0.0.0", 80, error)
    assert "may not listen on port 80 of 0.0.0.0 (permission denied)" in sentence
    assert "set web_port in config.yml" in sentence


SERVICE = """
import asyncio
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_the_service_with_exit_code_0(number):
    command = [sys.executable, "-W", "error", "-c", SERVICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as service:
        try:
            port = int(service.stdout.readline().decode().rpartition(":")[2])
            assert b"ok" in ask("127.0.0.1", port)
            with socket.create_connection(("127.0.0.1", port)):
                service.send_signal(number)
                assert service.wait(10) == 0
            assert service.stderr.read() == b""
        finally:
            service.kill()
