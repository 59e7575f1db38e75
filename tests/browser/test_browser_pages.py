"""Every page in a real browser: accessible, quiet, within the window, without foreign requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import Visit

pytestmark = pytest.mark.system

WIDTHS = (1440, 768, 390)
PAGES = {"front": "", "host": "host/gpu-03", "user": "user/dana", "missing": "host/nix"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(
    name: str, width: int, scheme: str, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7) + PAGES[name], width=width, scheme=scheme)
    if name == "missing":
        page.complaints = [one for one in page.complaints if "404" not in one]
    page.picture(f"{name}-{width}-{scheme}")
    assert page.violations() == []
    assert page.overflow() <= 0


@pytest.mark.parametrize("width", [320, 768, 1440])
@pytest.mark.parametrize("hosts", [1, 7, 63])
def test_nothing_scrolls_sideways(
    hosts: int, width: int, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    assert visit(demo(hosts), width=width).overflow() <= 0
