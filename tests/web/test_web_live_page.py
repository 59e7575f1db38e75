"""The live page in a real browser: what a refresh leaves alone, what is seen without a server."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="Debian's chromium is not installed"),
]


class Demo:
    """`gpumon demo` on one port, that can be ended and begun again."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.config = folder / "config.yml"
        settings = f"web_port: {self.port}\npoll_interval: 1\nweb: {{refresh_seconds: 2}}\n"
        self.config.write_text(settings)
        self.url = f"http://127.0.0.1:{self.port}/"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "gpumon", "demo", "--config", str(self.config)]
        self.process = subprocess.Popen([*command, "--hosts", "7"], stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(self.url, timeout=2):
                return
            assert time.monotonic() < end, "the demo does not answer"
            time.sleep(0.1)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.stop()


@pytest.fixture
def page(demo: Demo) -> Iterator[object]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-quic"]
        )
        page = browser.new_page()
        page.set_default_timeout(20_000)
        page.goto(demo.url)
        yield page
        browser.close()


def _until(holds: Callable[[], bool]) -> None:
    """Wait until something holds. Playwright's own way needs what the page's policy forbids."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.05)


def _next_revision(page) -> None:
    before = page.get_attribute("#asof", "data-time")
    _until(lambda: page.get_attribute("#asof", "data-time") != before)


def test_a_refresh_leaves_focus_selection_scroll_and_opened_details_alone(page):
    page.click("tr[data-host=gpu-02] summary")
    page.focus("tr[data-host=gpu-02] th a")
    page.evaluate("scrollTo(0, 150)")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#free h2'))")
    rows = page.evaluate("[...document.querySelectorAll('[data-host]')].map(r => r.dataset.host)")
    page.evaluate("window.kept = document.querySelector('tr[data-host=gpu-01]')")
    _next_revision(page)
    _next_revision(page)
    assert page.evaluate("document.querySelector('tr[data-host=gpu-02] details').open")
    assert page.evaluate("document.activeElement.textContent") == "gpu-02"
    assert page.evaluate("scrollY") == 150
    assert page.evaluate("getSelection().toString()") == "Free now"
    assert page.evaluate("kept === document.querySelector('tr[data-host=gpu-01]')")
    again = page.evaluate("[...document.querySelectorAll('[data-host]')].map(r => r.dataset.host)")
    assert again == rows


def test_a_paused_page_stays_as_it_is_and_says_so(page):
    asked = []
    page.on("request", lambda request: asked.append(request.resource_type))
    page.click("#pause")
    _until(lambda: page.text_content("#ago") in (", 4s ago (paused)", ", 5s ago (paused)"))
    assert page.text_content("#say") == "Refreshing is paused."
    assert "fetch" not in asked
    page.click("#pause")
    _next_revision(page)


def test_without_the_server_everything_is_unknown_until_it_is_back(demo, page):
    free = page.text_content("#counts b")
    assert free.isdigit()
    demo.stop()
    page.wait_for_selector("#gone:not([hidden])")
    assert "No answer from the server" in page.text_content("#gone")
    assert page.title().startswith("? free")
    assert page.text_content("#counts b") == "?"
    cells = "[...document.querySelectorAll('main .c')].map(c => c.className)"
    assert set(page.evaluate(cells)) == {"c unknown"}
    demo.start()
    page.wait_for_selector("#gone", state="hidden")
    _until(lambda: page.title()[0].isdigit())
    assert page.text_content("#counts b").isdigit()
    assert len(set(page.evaluate(cells))) > 3


def test_the_theme_is_kept(page):
    page.click("#theme")
    page.click("#theme")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(15, 19, 24)"
    page.emulate_media(color_scheme="dark")
    page.click("#theme")
    page.click("#theme")
    assert page.text_content("#theme") == "Colours: light"
    assert page.evaluate(background) == "rgb(255, 255, 255)"
