"""The open page behind nginx and Caddy, with HTTPS and a login in front, under /gpus/."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browsing import Visit
from commands.running import Command, get, wait_until
from playwright.sync_api import Error
from proxy.logins import PASSWORD, USER, self_signed, with_login
from proxy.proxies import Proxy, free_port
from shown import until

pytestmark = pytest.mark.system

# Where gpumon has a prefix it answers with and without it.
CONFIG = """poll_interval: 1
web: {refresh_seconds: 2, prefix: /gpus, user_header: X-Forwarded-User, anonymous_users: hidden}
"""
PLACES = {"nginx": " under /gpus/", "Caddy": ", the prefix kept"}


class Page:
    """The server of the page, which can be ended and begun again."""

    def __init__(self, folder: Path) -> None:
        (folder / "config.yml").write_text(CONFIG)
        self._command = Command(folder)
        self.port = free_port()
        self.start()

    def start(self) -> None:
        arguments = ("--config", "config.yml", "--web-port", str(self.port))
        self._process = self._command.start("demo", *arguments)
        url = f"http://127.0.0.1:{self.port}/healthz"
        wait_until(lambda: bool(get(url)), "the page is served")

    def stop(self) -> None:
        self._command.stop(self._process)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = Page(tmp_path_factory.mktemp("page"))
    yield page
    page.stop()


@pytest.fixture(params=PLACES)
def proxy(request: pytest.FixtureRequest, served: Page, tmp_path: Path) -> Iterator[Proxy]:
    place = PLACES[request.param]
    running = with_login(request.param, tmp_path, served.port, self_signed(tmp_path), place)
    yield running
    running.stop()


def test_the_page_lives_behind_a_proxy_with_https_and_a_login(
    proxy: Proxy, served: Page, visit: Callable[..., Visit]
) -> None:
    root = f"https://localhost:{proxy.port}/gpus/"
    with pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):
        visit(root, ignore_https_errors=True)
    context = {
        "ignore_https_errors": True,
        "http_credentials": {"username": USER, "password": PASSWORD},
    }
    opened = visit(root, **context)
    page = opened.page

    def refreshed() -> None:
        before = page.get_attribute("#asof", "data-time")
        until(lambda: page.get_attribute("#asof", "data-time") != before, "the page refreshes")

    refreshed()
    refreshed()
    assert page.get_by_role("link", name="My GPUs").count() == 1  # the proxy's word is taken
    page.fill("#q", "gpu-03")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{root}?q=gpu-03")
    page.click("#hosts tr[data-host=gpu-03] th a")
    page.wait_for_url(f"{root}host/gpu-03")
    refreshed()
    page.click("text=All hosts")
    page.wait_for_url(root)
    assert opened.complaints == []

    served.stop()
    until(lambda: page.is_visible("#gone"), "the banner")
    assert "(it says 502)" in page.inner_text("#gone")
    served.start()
    until(lambda: page.is_hidden("#gone"), "the banner goes")
    assert [url for url in opened.requests if not url.startswith(root)] == []
    opened.complaints = [words for words in opened.complaints if "502" not in words]
