"""Every page in a real browser: accessible, quiet, within the window, without foreign requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import Visit

pytestmark = pytest.mark.system

WIDTHS = (1440, 768, 390)
PAGES = {
    "front": "",
    "map": "?view=map",
    "nothing-matches": "?q=h200",
    "help": "help",
    "host": "host/gpu-03",
    "user": "user/dana",
    "missing": "host/nix",
}


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
@pytest.mark.parametrize("hosts", [1, 7, 63, 625, 1000])
def test_nothing_scrolls_sideways(
    hosts: int, width: int, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    assert visit(demo(hosts), width=width).overflow() <= 0


def test_without_script_the_questions_are_answered_and_the_filter_works(
    visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(63), java_script_enabled=False).page
    for heading in ("Free now", "Hosts", "Users by GPUs held", "Wasted or broken"):
        assert page.get_by_role("heading", name=heading).count() == 1, heading
    page.get_by_label("Filter").fill("free h100")
    page.get_by_role("button", name="Apply").click()
    assert "q=free" in page.url
    hosts = page.locator("#hosts tr[data-host]")
    assert 0 < hosts.count() < 63
    assert all("H100" in text for text in hosts.all_inner_texts())


def test_by_keyboard_alone_one_reaches_the_filter_a_host_and_the_way_back(
    visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7)).page

    def tab_to(wanted: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            found = page.evaluate(
                "(e => [e.innerText || e.name || '', getComputedStyle(e).outlineStyle])"
                "(document.activeElement)"
            )
            if found[0].strip() == wanted:
                assert found[1] != "none", f"no focus is seen on {wanted}"
                return
        raise AssertionError(f"{wanted} is not reached by Tab")

    tab_to("q")
    page.keyboard.type("gpu-03")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=gpu-03**")
    tab_to("gpu-03")
    page.keyboard.press("Enter")
    page.wait_for_url("**/host/gpu-03**")
    page.go_back()
    assert "q=gpu-03" in page.url


@pytest.mark.parametrize("context", [{"forced_colors": "active"}, {"reduced_motion": "reduce"}])
def test_each_state_is_told_without_colour(
    context: dict[str, str], visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7), **context)
    page.picture(f"front-{next(iter(context))}")
    signs = {
        state: page.page.locator(f"#hosts .c.{state}").first.inner_text().strip()
        for state in ("free", "idle", "fault")
    }
    assert signs["idle"] == "z"
    assert signs["fault"] == "!"
    assert signs["free"] == ""  # an empty cell with a thick border
