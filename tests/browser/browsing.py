"""One visit to a page: what the browser complained of, what axe finds, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Request

ARTIFACTS = Path(__file__).resolve().parents[2] / "test-artifacts"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


class Visit:
    """An open page. `complaints` collects console errors, CSP reports and foreign requests."""

    def __init__(
        self, browser: Browser, url: str, width: int, height: int, scheme: str, **context: Any
    ) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            **context,
        )
        self._origin = urlsplit(url)[:2]
        self.page = self._context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.page.on("request", self._asked)
        self.page.goto(url, wait_until="load")

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)
        if not request.url.startswith("data:") and urlsplit(request.url)[:2] != self._origin:
            self.complaints.append(f"a request to another origin: {request.url}")

    def violations(self) -> list[str]:
        """Return what axe-core finds, each with the place."""
        # axe is put in as the page's own script would be: the page's policy forbids it otherwise.
        found = Axe().run(self.page, options=RULES).response["violations"]
        return [
            f"{one['id']}: {one['help']}: {node['target']} {node.get('failureSummary', '')}"
            for one in found
            for node in one["nodes"][:3]
        ]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        width: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    def without_colour(self) -> None:
        """Let the page be seen in greys, as achromatopsia shows it."""
        self._context.new_cdp_session(self.page).send(
            "Emulation.setEmulatedVisionDeficiency", {"type": "achromatopsia"}
        )

    def picture(self, name: str) -> Path:
        """Keep a picture of the whole page among the test's artefacts."""
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.page.screenshot(path=path, full_page=True)
        return path

    def close(self) -> None:
        self._context.close()
