"""Hostile names in a real browser: nothing runs, is fetched, or is pushed aside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import Visit
from shown import Shown
from web.web_cluster import every_state
from web.web_hostile import HOSTILE, renamed

from gpumon.cluster.status import ClusterStatus
from gpumon.web.links import segment

pytestmark = pytest.mark.system


WORDS = [HOSTILE[0], HOSTILE[2], HOSTILE[5], HOSTILE[7]]
"""Markup out of attributes, markup that closes what is around it, control characters, length."""


@pytest.mark.parametrize("word", WORDS, ids=["attribute", "markup", "controls", "long"])
def test_hostile_names_stay_text_when_a_page_is_opened_and_when_it_refreshes(
    word: str, shown: Shown, visit: Callable[..., Visit]
) -> None:
    hostile: ClusterStatus = renamed(every_state(), ClusterStatus, word, {})
    refreshed = visit(shown.url)  # a tame page, into which the hostile one comes
    shown.refresh(refreshed.page, hostile)
    pages = [refreshed, visit(f"{shown.url}?view=map")]
    host = f"{shown.url}host/{segment(hostile.hosts[0].name)}"
    if len(host) < 4_000:  # a longer address is refused, by the server as by most proxies
        pages.append(visit(host))
    for one in pages:
        page = one.page
        assert page.locator("img, iframe, [onerror], [onmouseover]").count() == 0
        assert page.locator("script").count() == 1
        assert page.title().isprintable()
        assert page.inner_text("main").replace("\n", "").replace("\t", "").isprintable()
        for width in (1440, 768, 320):
            page.set_viewport_size({"width": width, "height": 900})
            assert one.overflow() <= 0, (page.url[:80], width)
    name = refreshed.page.get_attribute("#hosts [data-host]", "data-host")
    assert refreshed.page.locator("#hosts [data-host] th").first.inner_text() == name
