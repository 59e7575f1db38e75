"""The real web server over a cluster that the test sets, and can change while a page is open."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from msgspec import structs
from playwright.sync_api import Page
from web.web_client import site
from web.web_cluster import every_state
from web.web_serving import served

from gpumon.cluster.status import ClusterStatus
from gpumon.model import HostSnapshot

WAIT_SECONDS = 20.0


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds. Playwright's own way needs what the page's policy forbids."""
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end, f"not within {WAIT_SECONDS:.0f} s: {what}"
        time.sleep(0.02)


class Shown:
    """A web server that shows what it is given. Open pages refresh when they are told to."""

    def __init__(self) -> None:
        self.status = every_state()
        self.details: dict[str, HostSnapshot] = {}
        self._number = 0
        self._port = 0
        self._serving = contextlib.ExitStack()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def show(self, status: ClusterStatus, details: dict[str, Any] | None = None) -> None:
        """Put a status in force, as a new revision, one second younger than the last."""
        self._number += 1
        self.status = structs.replace(
            status, revision=f"s-{self._number}", time=status.time + self._number
        )
        self.details = details or {}

    def refresh(self, page: Page, status: ClusterStatus) -> None:
        """Show `status` and have `page` take it, as it does when its tab is seen again."""
        self.show(status)
        wanted = str(self.status.time)
        seen_again(page)
        until(
            lambda: page.get_attribute("#asof", "data-time") == wanted, "the page takes the status"
        )

    def start(self) -> None:
        """Begin to serve, after a stop at the same port."""
        app = site(lambda: self.status, lambda name: self.details.get(name), refresh_seconds=3600.0)
        self._port = self._serving.enter_context(served(app, self._port))

    def stop(self) -> None:
        self._serving.close()


def seen_again(page: Page) -> None:
    """Tell the page that its tab is looked at again, which has it refresh at once."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
