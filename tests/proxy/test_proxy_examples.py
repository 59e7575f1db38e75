"""The page behind real nginx and real Caddy, each with the examples of docs/reverse-proxy.md."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import pytest
from commands.running import Command
from proxy.logins import PASSWORD, self_signed, with_login
from proxy.proxies import Proxy, caddy, free_port, nginx

pytestmark = pytest.mark.system


class Reply(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        zipped = self.headers.get("Content-Encoding") == "gzip"
        return (gzip.decompress(self.body) if zipped else self.body).decode()


def ask(
    proxy: Proxy,
    path: str,
    *,
    tls: ssl.SSLContext | None = None,
    method: str = "GET",
    **headers: str,
) -> Reply:
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    else:
        connection = http.client.HTTPSConnection("localhost", proxy.port, timeout=10, context=tls)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers={"Accept": "text/html", **sent})
    answer = connection.getresponse()
    reply = Reply(answer.status, answer.headers, answer.read())
    connection.close()
    return reply


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Start the page and returns its port."""
    folder = tmp_path / "page"
    folder.mkdir()
    command = Command(folder)

    def start(config: str = "") -> int:
        port = free_port()
        (folder / "config.yml").write_text(config or "web: {title: GPUs}\n")
        process = command.start("demo", "--config", "config.yml", "--web-port", str(port))
        assert process.stderr is not None
        for line in process.stderr:
            if f":{port}/" in line:
                break
        else:
            raise AssertionError("the demo ended before it served")
        return port

    yield start
    command.end_all()


@pytest.fixture
def stopping() -> Iterator[list[Proxy]]:
    started: list[Proxy] = []
    yield started
    for proxy in started:
        proxy.stop()


STARTS = {"nginx": nginx, "Caddy": caddy}
PLACES = [
    ("at the root", "/", ""),
    ("under /gpus", "/gpus/", ""),
    (", the prefix kept", "/gpus/", "web: {prefix: /gpus}\n"),
]


def heading(program: str, place: str) -> str:
    if program == "nginx" and place == "under /gpus":
        place = "under /gpus/"
    if program == "Caddy" and place == "under /gpus":
        place = "under /gpus/"
    return f"{program}{place}" if place.startswith(",") else f"{program} {place}"


@pytest.mark.parametrize("program", STARTS)
@pytest.mark.parametrize(("place", "path", "config"), PLACES, ids=[p[0] for p in PLACES])
def test_every_link_of_the_page_leads_somewhere_through_the_proxy(
    program: str,
    place: str,
    path: str,
    config: str,
    page: Callable[..., int],
    tmp_path: Path,
    stopping: list[Proxy],
) -> None:
    proxy = STARTS[program](heading(program, place), tmp_path, page(config))
    stopping.append(proxy)
    front = ask(proxy, path)
    assert front.status == 200, front.text
    links = set(re.findall(r'(?:href|src)="([^"#]*)', front.text))
    inside = {urljoin(path, link) for link in links if not urlsplit(link).scheme}
    assert any("/static/" in link for link in inside)
    assert any("/host/" in link for link in inside)
    for link in sorted(inside):
        assert link.startswith(path), f"{link} leaves {path}"
    one_of_each = {re.sub(r"[^/]+$", "", urlsplit(link).path): link for link in inside}
    for link in one_of_each.values():
        reply = ask(proxy, link)
        assert reply.status == 200, f"{link}: {reply.status}"
        assert len(reply.body) > 0


@pytest.mark.parametrize("program", STARTS)
@pytest.mark.parametrize(("place", "path", "config"), PLACES, ids=[p[0] for p in PLACES])
def test_text_json_and_304_come_through_unchanged(
    program: str,
    place: str,
    path: str,
    config: str,
    page: Callable[..., int],
    tmp_path: Path,
    stopping: list[Proxy],
) -> None:
    proxy = STARTS[program](heading(program, place), tmp_path, page(config))
    stopping.append(proxy)
    assert json.loads(ask(proxy, f"{path}status.json").body)["schema"] >= 1
    assert "SIMULATED" in ask(proxy, path, Accept="*/*", User_Agent="curl/8").text
    zipped = ask(proxy, path, Accept_Encoding="gzip")
    assert zipped.headers["Content-Encoding"] == "gzip"
    static = re.search(r'"([^"]*static/gpumon\.css[^"]*)"', zipped.text)
    assert static is not None
    link = urljoin(path, static[1])
    asset = ask(proxy, link)
    again = ask(proxy, link, If_None_Match=asset.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    policy = zipped.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert ask(proxy, path, method="POST").status == 405


@pytest.mark.parametrize("program", STARTS)
@pytest.mark.parametrize(("place", "path", "config"), PLACES[1:], ids=[p[0] for p in PLACES[1:]])
def test_the_prefix_without_its_slash_leads_to_the_page(
    program: str,
    place: str,
    path: str,
    config: str,
    page: Callable[..., int],
    tmp_path: Path,
    stopping: list[Proxy],
) -> None:
    proxy = STARTS[program](heading(program, place), tmp_path, page(config))
    stopping.append(proxy)
    sent_on = ask(proxy, "/gpus")
    assert sent_on.status == 302
    assert urljoin("/gpus", sent_on.headers["Location"]) == path


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of its own for localhost."""
    return self_signed(tmp_path)


@pytest.mark.parametrize("program", STARTS)
def test_https_and_a_login_stand_in_front_of_everything(
    program: str,
    page: Callable[..., int],
    tmp_path: Path,
    stopping: list[Proxy],
    certificate: tuple[Path, Path],
) -> None:
    proxy = with_login(program, tmp_path, page(), certificate)
    stopping.append(proxy)
    tls = ssl.create_default_context(cafile=str(certificate[0]))
    for path in ("/", "/status.json", "/status.txt"):
        assert ask(proxy, path, tls=tls).status == 401, path
    login = "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    front = ask(proxy, "/", tls=tls, Authorization=login)
    assert front.status == 200
    assert "SIMULATED" in front.text
    wrong = "Basic " + base64.b64encode(b"alice:wrong").decode()
    assert ask(proxy, "/", tls=tls, Authorization=wrong).status == 401


@pytest.mark.parametrize("program", STARTS)
def test_a_page_that_is_gone_is_a_bad_gateway_at_once(
    program: str, page: Callable[..., int], tmp_path: Path, stopping: list[Proxy]
) -> None:
    nobody = free_port()
    proxy = STARTS[program](f"{program} at the root", tmp_path, nobody)
    stopping.append(proxy)
    assert ask(proxy, "/").status == 502


READERS = (
    "web: {user_header: X-Forwarded-User, anonymous_users: hidden, admins: [root], prefix: /gpus}\n"
)


@pytest.mark.parametrize("program", STARTS)
@pytest.mark.parametrize(("place", "path", "_"), PLACES, ids=[p[0] for p in PLACES])
def test_nobody_becomes_somebody_by_sending_the_header(
    program: str,
    place: str,
    path: str,
    _: str,
    page: Callable[..., int],
    tmp_path: Path,
    stopping: list[Proxy],
) -> None:
    port = page(READERS)
    proxy = STARTS[program](heading(program, place), tmp_path, port)
    stopping.append(proxy)
    forged = ask(proxy, f"{path}status.json", X_Forwarded_User="root")
    assert {user["user"] for user in json.loads(forged.body)["users"]} <= {"name hidden", None}
    assert ask(proxy, f"{path}me", X_Forwarded_User="root").status == 404


@pytest.mark.parametrize("program", STARTS)
def test_who_logged_in_at_the_proxy_is_known_by_that_name_whatever_else_was_sent(
    program: str,
    page: Callable[..., int],
    tmp_path: Path,
    stopping: list[Proxy],
    certificate: tuple[Path, Path],
) -> None:
    proxy = with_login(program, tmp_path, page(READERS), certificate)
    stopping.append(proxy)
    tls = ssl.create_default_context(cafile=str(certificate[0]))
    login = "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    own = ask(proxy, "/me", tls=tls, Authorization=login, X_Forwarded_User="root")
    assert (own.status, own.headers["Location"]) == (302, "user/alice")
    told = json.loads(ask(proxy, "/status.json", tls=tls, Authorization=login).body)
    assert "dana" in {user["user"] for user in told["users"]}
