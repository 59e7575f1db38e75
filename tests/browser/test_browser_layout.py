"""What is seen without scrolling, and what a reader's own spacing does to the page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import Visit

pytestmark = pytest.mark.system

SPACED = """
const sheet = new CSSStyleSheet();
sheet.replaceSync(`* { line-height: 1.5 !important; letter-spacing: .12em !important;
  word-spacing: .16em !important } p { margin-bottom: 2em !important }`);
document.adoptedStyleSheets = [sheet];
"""
"""What WCAG 2.2 (1.4.12) lets readers set."""


def _tops(visit: Visit) -> dict[str, int]:
    found: dict[str, int] = visit.page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('main > [id]')]"
        ".map((e) => [e.id, Math.round(e.getBoundingClientRect().top)]))"
    )
    return found


@pytest.mark.parametrize("hosts", [7, 63, 625])
def test_the_first_screen_answers_what_is_free_who_holds_and_what_is_broken(
    hosts: int, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    shown = visit(demo(hosts))
    tops = _tops(shown)
    assert tops["worst"] < tops["free"] == tops["users"] < tops["hosts"] < 700
    assert shown.page.locator("header").bounding_box()["height"] < 60
    last = shown.page.locator("#users tbody").nth(5)
    assert last.bounding_box()["y"] < 900


def test_the_map_of_625_hosts_fits_two_and_a_half_screens(
    visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    assert _tops(visit(demo(625)))["waste"] < 2.5 * 900


@pytest.mark.parametrize(
    "path", ["", "?view=map", "host/gpu-03", "user/dana", "help", "?q=h200%20free%2099x"]
)
def test_wide_text_spacing_pushes_nothing_out_of_a_narrow_window(
    path: str, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    shown = visit(demo(7) + path, width=320)
    shown.page.evaluate(SPACED)
    assert shown.overflow() <= 0
    shown.picture(f"spaced-{path.strip('?').replace('/', '-') or 'front'}-320")
