"""What a refresh leaves alone in an open page, and what it must not miss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import Visit
from playwright.sync_api import Page
from shown import Shown, seen_again, until
from web.web_cluster import cluster, gpu, holder, host

from gpumon.cluster.status import ClusterStatus

pytestmark = pytest.mark.system

REGIONS = "[aria-live],[role=status],[role=alert],[role=log],[role=timer],[role=marquee],output"
LISTEN = f"""() => {{
  window.spoken = [];
  const regions = [...document.querySelectorAll("{REGIONS}")];
  for (const region of regions)
    new MutationObserver(() => spoken.push(`${{region.id}}: ${{region.textContent}}`)).observe(
      region, {{childList: true, characterData: true, subtree: true, attributes: true}});
  return regions.map((region) => region.id).sort();
}}"""


def _moment(step: int) -> ClusterStatus:
    """Three hosts on which something else is the case at every step."""
    held = [holder("alice", hours=3.0 + step)]
    also = [holder("carol", hours=1.0 + step)] if step % 2 else []
    gone = step >= 5
    return cluster(
        [
            host(
                "gpu-1",
                [
                    *[
                        gpu(i, "busy", holders=also, utilization_percent=9)
                        for i in range(len(also))
                    ],
                    gpu(2, "free") if gone else gpu(2, "busy", holders=held),
                    gpu(3, "busy", holders=[holder("bob", hours=step)], utilization_percent=step),
                ],
            ),
            host("gpu-2", [gpu(0, "busy", holders=[holder("dora", hours=5.0 + step)])]),
            host("gpu-3", [gpu(0, "busy", utilization_percent=20 + step), gpu(1, "free")]),
        ]
    )


def _text(page: Page, selector: str) -> str:
    return " ".join(page.inner_text(selector).split())


def test_focus_and_selection_last_through_ten_refreshes_and_nothing_is_announced(
    shown: Shown, visit: Callable[..., Visit]
) -> None:
    shown.show(_moment(0))
    page = visit(shown.url).page
    assert page.evaluate(LISTEN) == ["gone", "say"]
    page.focus("tr[data-host=gpu-1] .who a[href$=alice]")
    page.evaluate(
        "getSelection().selectAllChildren(document.querySelector('tr[data-host=gpu-2] .who'))"
    )
    selected = page.evaluate("getSelection().toString()")
    assert selected.split() == ["dora", "1", "at", "most", "5h00"]
    for step in range(1, 11):
        shown.refresh(page, _moment(step))
        # The row beside them shows that this refresh came.
        assert _text(page, "tr[data-host=gpu-3] .strip") == str(20 + step)
        assert page.evaluate("document.activeElement.textContent") == "alice", step
        assert page.evaluate("document.activeElement.getAttribute('href')") == "./user/alice"
        assert page.evaluate("getSelection().toString()") == selected, step
    assert page.evaluate("spoken") == []

    # A row that waited does not wait for ever: it follows once it is left.
    page.evaluate("getSelection().removeAllRanges()")
    page.focus("tr[data-host=gpu-3] th a")
    shown.refresh(page, _moment(12))
    assert _text(page, "tr[data-host=gpu-1] .who") == "bob 1 at most 12h00"
    assert _text(page, "tr[data-host=gpu-2] .who") == "dora 1 at most 17h00"
    page.click("#pause")
    assert page.evaluate("spoken") == ["say: Refreshing is paused."]


def test_the_cells_of_a_row_in_which_something_has_the_focus_stay_up_to_date(
    shown: Shown, visit: Callable[..., Visit]
) -> None:
    shown.show(_moment(0))
    page = visit(shown.url).page
    page.focus("tr[data-host=gpu-1] .who a[href$=bob]")
    shown.refresh(page, _moment(6))
    assert page.inner_text("tr[data-host=gpu-1] .f").startswith("1")
    assert "free" in page.get_attribute("tr[data-host=gpu-1] .c[data-gpu='2']", "class")


def test_what_tells_a_state_does_not_wait_for_a_selection(
    shown: Shown, visit: Callable[..., Visit]
) -> None:
    # Above 50 hosts the cells stand in their row alone, without a list to open.
    many = [host(f"gpu-{n}", [gpu(0, "free")]) for n in range(51)]
    shown.show(cluster(many))
    page = visit(shown.url).page
    page.keyboard.press("Control+a")
    busy = [host(f"gpu-{n}", [gpu(0, "busy", utilization_percent=73)]) for n in range(51)]
    shown.show(cluster(busy))
    seen_again(page)
    cells = page.locator("#hosts .strip .c")
    until(lambda: set(cells.all_inner_texts()) == {"73"}, "the cells are busy")
    assert page.locator("#hosts .strip .c:not(.busy)").count() == 0
    assert page.title() == "0 free - GPUs"


def test_scroll_position_opened_details_and_the_order_of_rows_stay(
    shown: Shown, visit: Callable[..., Visit]
) -> None:
    many = [host(f"gpu-{n}", [gpu(i, "busy") for i in range(4)]) for n in range(9)]
    shown.show(cluster(many))
    page = visit(shown.url, height=300).page
    page.click("tr[data-host=gpu-2] summary")
    page.evaluate("scrollTo(0, 150)")
    page.evaluate("window.kept = document.querySelector('tr[data-host=gpu-1]')")
    shown.refresh(page, cluster(many[::-1]))
    assert page.evaluate("document.querySelector('tr[data-host=gpu-2] details').open")
    assert page.evaluate("scrollY") == 150
    assert page.evaluate("kept === document.querySelector('tr[data-host=gpu-1]')")
    rows = page.evaluate("[...document.querySelectorAll('[data-host]')].map(r => r.dataset.host)")
    assert rows == [one.name for one in many]
    page.reload()
    assert page.get_attribute("#hosts [data-host]", "data-host") == "gpu-8"


def test_a_paused_page_asks_nothing_and_says_so(shown: Shown, visit: Callable[..., Visit]) -> None:
    opened = visit(shown.url)
    page = opened.page
    page.click("#pause")
    assert page.text_content("#say") == "Refreshing is paused."
    until(lambda: page.text_content("#ago").endswith(" ago (paused)"), "the age says it")
    before = len(opened.requests)
    seen_again(page)
    age = page.text_content("#ago")
    until(lambda: page.text_content("#ago") != age, "the age grows on")
    assert len(opened.requests) == before
    shown.show(_moment(1))
    page.click("#pause")
    until(lambda: page.title() == "1 free - GPUs", "it refreshes again")


GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 24)"}
"""The background of the page in each mode."""


def _ground(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.mark.parametrize("system", GROUNDS)
def test_the_chosen_colours_are_shown_and_kept_whatever_the_system_has(
    system: str, shown: Shown, visit: Callable[..., Visit]
) -> None:
    page = visit(shown.url, scheme=system).page
    other = {"light": "dark", "dark": "light"}[system]
    assert page.evaluate("document.documentElement.dataset.theme") == "auto"
    assert page.text_content("#theme") == "Colours: as the system"
    assert _ground(page) == GROUNDS[system]
    page.emulate_media(color_scheme=other)
    assert _ground(page) == GROUNDS[other]
    page.emulate_media(color_scheme=system)
    for choice in ("light", "dark"):
        page.click("#theme")
        for _ in range(2):
            assert page.text_content("#theme") == f"Colours: {choice}"
            assert page.evaluate("document.documentElement.dataset.theme") == choice
            assert _ground(page) == GROUNDS[choice]
            scheme = "getComputedStyle(document.documentElement).colorScheme"
            assert page.evaluate(scheme) == choice
            page.reload()
    page.click("#theme")
    assert page.text_content("#theme") == "Colours: as the system"
    assert _ground(page) == GROUNDS[system]
