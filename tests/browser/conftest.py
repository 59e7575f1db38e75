"""A real Chromium, driven by playwright, on real servers over invented clusters."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browsing import Visit
from playwright.sync_api import Browser, sync_playwright
from shown import Shown
from web.web_cluster import every_state

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]


# Not for the whole session: while playwright works, its event loop counts as running in this
# thread, and tests that run one of their own could not.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path, "chromium is not installed: tests/install-packages"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens a page; at the end nothing may have gone wrong that the browser noticed."""
    opened: list[Visit] = []

    def open_page(
        url: str, *, width: int = 1440, height: int = 900, scheme: str = "light", **context: object
    ) -> Visit:
        found = Visit(chromium, url, width, height, scheme, **context)
        opened.append(found)
        return found

    yield open_page
    complaints = [words for one in opened for words in one.complaints]
    for one in opened:
        one.close()
    assert complaints == []


def _start(*arguments: str, folder: Path) -> tuple[subprocess.Popen[str], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "gpumon", *arguments, "--web-port", str(port)],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while f":{port}/" not in process.stderr.readline():
        assert process.poll() is None, "the server ended before it served"
    return process, f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], str]]:
    """Starts the demo with so many hosts, each size once, and returns its address."""
    running: dict[int, tuple[subprocess.Popen[str], str]] = {}

    def address(hosts: int) -> str:
        if hosts not in running:
            folder = tmp_path_factory.mktemp(f"demo-{hosts}")
            running[hosts] = _start("demo", "--hosts", str(hosts), folder=folder)
        return running[hosts][1]

    yield address
    for process, _ in running.values():
        process.terminate()
        process.communicate(timeout=15)


@pytest.fixture(scope="module")
def _shown() -> Iterator[Shown]:
    shown = Shown()
    yield shown
    shown.stop()


@pytest.fixture
def shown(_shown: Shown) -> Shown:
    """The web server over a cluster that the test sets; at first one with a GPU of every state."""
    _shown.show(every_state())
    return _shown
