"""By keyboard alone: to the filter, to a host, to its processes, and back; focus is always seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import Visit
from playwright.sync_api import Page

pytestmark = pytest.mark.system

MOST_STEPS = 80
# What a person who sees must find at each stop: a ring of two pixels that stands out 3:1 from what
# is around it, inside the window, and nothing lying over the thing that has the focus.
FOCUS = """() => {
  const luminance = (colour) => {
    const parts = colour.match(/[0-9.]+/g).slice(0, 3).map(Number).map((p) => p / 255)
      .map((p) => (p <= 0.04045 ? p / 12.92 : ((p + 0.055) / 1.055) ** 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const one = document.activeElement, style = getComputedStyle(one);
  let ground = "rgb(255, 255, 255)";
  for (let out = one.parentElement; out; out = out.parentElement) {
    const colour = getComputedStyle(out).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)") { ground = colour; break; }
  }
  const [a, b] = [luminance(style.outlineColor), luminance(ground)].sort((x, y) => y - x);
  const box = one.getClientRects()[0];
  const over = document.elementFromPoint(box.left + Math.min(box.width, 60) / 2,
    Math.min(box.top + box.height / 2, box.top + 12));
  return {
    name: one.matches("input") ? one.name : (one.getAttribute("aria-label") ?? one.innerText),
    tag: one.nodeName,
    ring: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth),
    contrast: (a + 0.05) / (b + 0.05),
    inside: box.top >= 0 && box.left >= 0 && box.right <= innerWidth
      && box.top + Math.min(box.height, 24) <= innerHeight,
    uncovered: one.contains(over) || over?.contains(one),
  };
}"""


def _stop(page: Page, key: str) -> str:
    """Press a key that moves the focus; return what has it, which must be seen to have it."""
    page.keyboard.press(key)
    found = page.evaluate(FOCUS)
    assert found["ring"] >= 2, f"no ring is drawn around {found}"
    assert found["contrast"] >= 3, f"the ring hardly differs from its ground: {found}"
    assert found["inside"], f"out of the window: {found}"
    assert found["uncovered"], f"something lies over it: {found}"
    return str(found["name"]).strip()


def _to(page: Page, wanted: str, key: str = "Tab") -> None:
    for _ in range(MOST_STEPS):
        if _stop(page, key) == wanted:
            return
    raise AssertionError(f"{wanted} is not reached by {key}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_filter_a_host_its_processes_and_the_way_back(
    width: int, scheme: str, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7), width=width, height=500, scheme=scheme).page
    _to(page, "q")
    page.keyboard.type("gpu-0[123]")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=gpu-0**")
    assert page.locator("#hosts tr[data-host]").count() == 3
    _to(page, "gpu-03")
    page.keyboard.press("Enter")
    page.wait_for_url("**/host/gpu-03")
    _to(page, "Processes")
    user = _stop(page, "Tab")
    assert page.evaluate("document.activeElement.closest('#processes') !== null")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/user/{user}")
    page.go_back()
    page.go_back()
    assert "q=gpu-0" in page.url
    page.go_forward()
    _to(page, "Processes")
    _to(page, "All hosts", key="Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(demo(7))


@pytest.mark.parametrize("address", ["", "host/gpu-03"])
@pytest.mark.parametrize("width", [1440, 1024, 768, 390])
def test_backwards_through_the_page_the_header_covers_nothing(
    width: int, address: str, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7) + address, width=width, height=400).page
    page.evaluate("document.querySelector('footer a:last-of-type').focus()")
    stops = 0
    while _stop(page, "Shift+Tab") != "Skip to content":
        stops += 1
    assert stops > 20


def test_the_first_stop_leads_past_the_header(
    visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7)).page
    assert _stop(page, "Tab") == "Skip to content"
    page.keyboard.press("Enter")
    _stop(page, "Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_details_of_a_row_open_by_keyboard(
    visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7)).page
    row = page.locator("#hosts tr[data-host=gpu-01]")
    _to(page, "gpu-01")  # among the free ones
    for _ in range(MOST_STEPS):
        _stop(page, "Tab")
        if page.evaluate("document.activeElement.matches('[data-host=gpu-01] summary')"):
            break
    assert row.locator("table.gpus").is_hidden()
    page.keyboard.press("Enter")
    assert row.locator("table.gpus").is_visible()


def test_keys_of_the_page_are_off_until_somebody_switches_them_on(
    visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7) + "help").page
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.nodeName") == "BODY"
    _to(page, "Switch on")
    page.keyboard.press("Enter")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("f")  # typed, not a command
    assert page.input_value("#q") == "f"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("f")
    page.wait_for_url("**q=free")
