"""Every page in a real browser: accessible, quiet, within the window, without foreign requests."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from browsing import Visit
from playwright.sync_api import Page
from shown import Shown, until
from web.web_cluster import cluster, every_state, gpu, holder, host

from gpumon.cluster.status import ClusterStatus
from gpumon.states import GpuState

pytestmark = pytest.mark.system

WIDTHS = (1440, 390)
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
    for other in (320, 768, width):
        page.page.set_viewport_size({"width": other, "height": 900})
        assert page.overflow() <= 0, other


STATUSES = {
    "no-hosts": cluster([]),
    "every-state": every_state(),
    "nothing-free": cluster([host("gpu-1", [gpu(0, "idle"), gpu(1, "busy")])]),
    "no-answer": cluster([host("gpu-1", [], state="never", gpu_count=None, age_seconds=None)]),
}


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
@pytest.mark.parametrize("name", STATUSES)
def test_axe_finds_nothing_whatever_the_hosts_say(
    name: str, width: int, scheme: str, shown: Shown, visit: Callable[..., Visit]
) -> None:
    shown.show(STATUSES[name])
    page = visit(shown.url, width=width, scheme=scheme)
    page.picture(f"{name}-{width}-{scheme}")
    assert page.violations() == []
    assert page.overflow() <= 0


def test_axe_finds_nothing_on_the_page_of_a_silent_host(
    shown: Shown, visit: Callable[..., Visit]
) -> None:
    page = visit(f"{shown.url}host/gpu-4")
    assert "the last ones known" in page.page.inner_text("main")
    assert page.violations() == []


@pytest.mark.parametrize(
    ("deed", "word"),
    [
        ("document.body.setAttribute('style', 'margin: 0')", "Content Security Policy"),
        ("new Image().src = 'http://127.0.0.2:9/'", "Content Security Policy"),
        ("setTimeout(() => { throw new Error('broken') })", "script: broken"),
    ],
)
def test_what_the_browser_complains_of_is_noticed(
    deed: str, word: str, shown: Shown, visit: Callable[..., Visit]
) -> None:
    opened = visit(shown.url)
    opened.page.evaluate(f"() => {{ {deed} }}")

    def told() -> bool:
        opened.page.evaluate("0")  # lets the browser's messages come in
        return any(word in said for said in opened.complaints)

    until(told, word)
    opened.complaints = []


def test_axe_finds_what_is_wrong(shown: Shown, visit: Callable[..., Visit]) -> None:
    page = visit(shown.url)
    page.page.evaluate("document.documentElement.removeAttribute('lang')")
    assert any(found.startswith("html-has-lang:") for found in page.violations())


@pytest.mark.parametrize("view", ["", "?view=rows", "?view=map"])
@pytest.mark.parametrize("hosts", [1, 7, 63, 625, 1000])
def test_nothing_scrolls_sideways(
    hosts: int, view: str, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    opened = visit(demo(hosts) + view, width=320)
    squares = opened.page.locator(".map a").count()
    assert squares == (hosts if view == "?view=map" or (not view and hosts > 200) else 0)
    for width in (320, 768, 1440):
        opened.page.set_viewport_size({"width": width, "height": 900})
        assert opened.overflow() <= 0, width


def _five_hundred() -> ClusterStatus:
    """504 GPUs on 63 hosts, most of them busy, for many users; a few broken, unknown or drained."""
    mixture: tuple[GpuState, ...] = ("busy", "busy", "idle", "busy", "free", "busy", "busy", "busy")
    hosts = []
    for number in range(63):
        gpus = []
        for index in range(8):
            place = number * 8 + index
            state = mixture[(number * 3 + index * 5) % len(mixture)]
            if place % 97 == 60:
                state = "fault"
            elif number in (7, 41):
                state = "drained" if number == 7 else "unknown"
            owner = holder(f"user{(number * 5 + index // 3) % 37:02}", hours=1 + place % 90)
            one = gpu(
                index,
                state,
                model="H100 80G" if number < 40 else "A100 40G",
                utilization_percent=(number * 13 + index * 29) % 101,
                holders=[owner] if state in ("busy", "idle") else [],
            )
            gpus.append(one)
        hosts.append(host(f"gpu-{number:04}", gpus))
    return cluster(hosts)


@pytest.mark.parametrize(
    ("look", "width", "scheme"),
    [
        ("light", 1440, "light"),
        ("dark", 1440, "dark"),
        ("phone", 390, "light"),
        ("phone-dark", 390, "dark"),
        ("grey", 1440, "light"),
        ("forced-colours", 1440, "light"),
    ],
)
def test_504_gpus_in_a_picture(
    look: str, width: int, scheme: str, shown: Shown, visit: Callable[..., Visit]
) -> None:
    shown.show(_five_hundred())
    context = {"forced_colors": "active"} if look == "forced-colours" else {}
    page = visit(shown.url, width=width, scheme=scheme, **context)
    if look == "grey":
        page.without_colour()
    assert "of 504 GPUs on 63 hosts" in page.page.inner_text("#counts")
    assert page.page.locator("#hosts .strip .c").count() == 504
    assert page.picture(f"504-gpus-{look}").stat().st_size > 50_000
    assert page.overflow() <= 0


@pytest.mark.parametrize("width", [1440, 768, 390])
def test_short_words_in_the_list_of_processes_are_not_broken(
    width: int, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    opened = visit(demo(7) + "host/gpu-03", width=width)
    words = opened.page.get_by_role("cell", name=re.compile("^(compute|running)$"))
    lines = words.evaluate_all("""cells => cells.map(cell => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return range.getClientRects().length;
    })""")
    assert len(lines) >= 2
    assert set(lines) == {1}
    assert opened.overflow() <= 0


def _hosts(page: Page) -> list[str]:
    rows = page.locator("#hosts tr[data-host]").all()
    return [str(row.get_attribute("data-host")) for row in rows]


def test_without_script_a_click_on_a_heading_sorts(
    visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7), java_script_enabled=False).page
    before = _hosts(page)
    for _ in range(2):
        page.click("#hosts thead th.h a")
    assert _hosts(page) == before[::-1]
    assert page.get_attribute("#hosts thead th.h", "aria-sort") == "descending"


def test_without_script_the_questions_are_answered_and_the_filter_works(
    visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(63), java_script_enabled=False).page
    for heading in ("Free now", "Hosts", "Users by GPUs held", "Wasted or broken", "Last week"):
        assert page.get_by_role("heading", name=heading).count() == 1, heading
    page.get_by_label("Filter").fill("free h100")
    page.get_by_role("button", name="Apply").click()
    assert "q=free" in page.url
    hosts = page.locator("#hosts tr[data-host]")
    assert 0 < hosts.count() < 63
    assert all("H100" in text for text in hosts.all_inner_texts())
