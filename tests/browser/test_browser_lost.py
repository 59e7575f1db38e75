"""Open pages while a real agent or the real server ends, and when it comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browsing import Visit
from playwright.sync_api import Page
from real_site import RealSite
from shown import until

pytestmark = pytest.mark.system

CELLS = "[...document.querySelectorAll('main .c, .map i')].map(c => c.className)"
FREE = '#counts a[data-state="free"] b'


@pytest.fixture(scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSite]:
    site = RealSite(tmp_path_factory.mktemp("site"))
    yield site
    site.end()


@pytest.fixture
def site(_site: RealSite) -> RealSite:
    _site.start_all()
    return _site


def _has_refreshed(page: Page) -> None:
    """Wait until the page has just refreshed."""
    before = page.get_attribute("#asof", "data-time")
    until(lambda: page.get_attribute("#asof", "data-time") != before, "the page refreshes")


def _fetches(page: Page) -> list[str]:
    """Return a list that grows by what each of the page's refreshes ends in."""
    ended: list[str] = []
    page.on("requestfinished", lambda r: ended.append("good") if r.resource_type == "fetch" else 0)
    page.on("requestfailed", lambda r: ended.append("bad") if r.resource_type == "fetch" else 0)
    return ended


def _row(page: Page, host: str) -> str:
    return " ".join(page.inner_text(f"#hosts tr[data-host={host}]").split())


def _states(page: Page, host: str) -> list[str]:
    found: list[str] = page.evaluate(
        f"[...document.querySelectorAll('#hosts tr[data-host={host}] .c')].map(c => c.className)"
    )
    return found


def test_two_refreshes_after_an_agent_ended_its_gpus_are_unknown_with_their_last_users_and_time(
    site: RealSite, visit: Callable[..., Visit]
) -> None:
    front = visit(site.url).page
    until(lambda: front.text_content(FREE) == "2", "both free GPUs are seen")
    busy_and_free = _states(front, "left")
    assert busy_and_free == ["c busy u5", "c free"]
    _has_refreshed(front)
    refreshes = _fetches(front)
    site.stop("left")
    until(lambda: _states(front, "left") == ["c unknown", "c unknown"], "the cells are unknown")
    assert len(refreshes) <= 2

    assert front.text_content(FREE) == "1"
    assert front.title().startswith("1 free")
    assert "left" not in front.inner_text("#free")
    row = _row(front, "left")
    assert f"last: {site.user} 1" in row
    assert "stale" in row
    assert front.get_attribute("#hosts tr[data-host=left]", "data-state") == "stale"
    seen = front.inner_text("#hosts tr[data-host=left] .seen").split()[0]
    assert seen.endswith("s"), "since when it is silent stands beside it"
    assert _states(front, "right") == busy_and_free

    host = visit(f"{site.url}host/left").page
    words = host.inner_text("main")
    assert "All values below are the last ones known, from" in words
    assert site.user in host.inner_text("#gpus")
    assert set(host.evaluate(CELLS)) == {"c unknown"}
    assert str(site.job.pid) in host.inner_text("#processes")

    site.start("left")
    until(lambda: _states(front, "left") == busy_and_free, "it is back in the open page")
    assert front.text_content(FREE) == "2"


def test_without_the_server_everything_is_unknown_until_it_is_back(
    site: RealSite, visit: Callable[..., Visit]
) -> None:
    addresses = ["", "host/right", f"user/{site.user}", "?view=map"]
    help_page = visit(f"{site.url}help")
    legend = help_page.page.evaluate(CELLS)
    visits = [visit(site.url + address) for address in addresses]
    before = {one.page: (one.page.title(), one.page.evaluate(CELLS)) for one in visits}
    refreshes = _fetches(visits[0].page)
    site.stop("web")
    until(lambda: visits[0].page.is_visible("#gone"), "the banner")
    assert refreshes.count("bad") == 2
    for page in before:
        until(lambda page=page: page.is_visible("#gone"), "the banner")
        assert "No answer from the server (not reached)" in page.inner_text("#gone")
        assert page.title().startswith("? ")
        assert {name.split()[-1] for name in page.evaluate(CELLS)} <= {"unknown"}
        assert set(page.locator("#counts b").all_inner_texts()) == {"?"}
        assert set(page.locator(":is(.gpus, .flow) .w").all_text_contents()) <= {"unknown"}
        assert set(page.locator("#worst .said").all_text_contents()) <= {"unknown"}
        assert set(page.locator("#hosts .sr, #hosts .f:not(th)").all_text_contents()) <= {
            "unknown",
            "?",
        }
        claims = (
            "[data-host][data-state=fresh], [data-gpu]:is([data-state=free], [data-state=busy])"
        )
        assert page.locator(claims).count() == 0
        assert page.locator(".map a:not([title=unknown])").count() == 0
        assert "free" not in page.inner_text("#totals")
    assert visits[0].page.locator("#free tbody .n").all_inner_texts() == ["?"] * 4
    assert "fresh" not in visits[1].page.inner_text("main")
    assert "busy" not in visits[1].page.inner_text("main")
    assert "busy" not in visits[2].page.inner_text("main")
    assert visits[2].page.locator(".flow .w").all_text_contents() == ["unknown"] * 2
    until(lambda: help_page.page.is_visible("#gone"), "the banner on the help page")
    assert help_page.page.evaluate(CELLS) == legend
    assert visits[0].violations() == []

    site.start("web")
    for page, (title, cells) in before.items():
        until(lambda page=page: page.is_hidden("#gone"), "the banner goes")
        until(lambda page=page, cells=cells: page.evaluate(CELLS) == cells, "the cells are back")
        until(lambda page=page, title=title: page.title() == title, "the title is back")
        assert page.inner_text("#say") == "The server answers again."
        assert page.locator("main :text-is('unknown')").count() == 0
    for one in [help_page, *visits]:
        one.complaints = [words for words in one.complaints if "net::ERR_" not in words]
