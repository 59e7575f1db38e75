"""Each state of a GPU can be named without colours: in grey, and in the user's own colours."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import combinations

import pytest
from browsing import Visit
from playwright.sync_api import Browser
from shown import Shown
from web.web_cluster import cluster, gpu, holder, host

from gpumon.cluster.status import ClusterStatus
from gpumon.states import GPU_STATES

pytestmark = pytest.mark.system

PLACES = {"rows": ("", "#hosts .c"), "map": ("?view=map", ".map i"), "help": ("help", "#legend .c")}
LOOKS = {"grey": {}, "forced": {"forced_colors": "active"}}
LOOK = """cells => cells.map(cell => {
  const style = getComputedStyle(cell), before = getComputedStyle(cell, "::before").content;
  const sign = cell.textContent.trim() || (before === "none" ? "" : JSON.parse(before));
  return [`${style.borderTopStyle} ${style.borderTopWidth}`, sign.replace(/[0-9]+/, "number")];
})"""
CUT = """async ([picture, places]) => {
  const image = new Image();
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  return places.map(({x, y, width, height}) =>
    [...canvas.getImageData(x, y, width, height).data].filter((_, at) => at % 4 !== 3));
}"""
DIFFERENT_PIXELS = 0.03
"""So many of a cell's pixels, of one, have another grey than those of every other state."""


def _six() -> ClusterStatus:
    """One host with a GPU in each state, in the order of GPU_STATES."""
    known = {"busy": {"utilization_percent": 7}, "idle": {"holders": [holder("bob", hours=30)]}}
    return cluster(
        [host("gpu-1", [gpu(i, s, **known.get(s, {})) for i, s in enumerate(GPU_STATES)])]
    )


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_each_state_has_a_border_and_a_sign_of_its_own(
    place: str, scheme: str, look: str, shown: Shown, visit: Callable[..., Visit]
) -> None:
    shown.show(_six())
    address, cells = PLACES[place]
    opened = visit(shown.url + address, scheme=scheme, **LOOKS[look])
    page = opened.page
    if look == "grey":
        opened.without_colour()
    opened.picture(f"states-{place}-{look}-{scheme}")
    names = page.evaluate(
        f"[...document.querySelectorAll('{cells}')].map(c => c.className.match(/free|busy|idle"
        "|fault|unknown|drained/)[0])"
    )
    assert names == list(GPU_STATES)
    pairs = [tuple(pair) for pair in page.locator(cells).evaluate_all(LOOK)]
    assert len(set(pairs)) == len(GPU_STATES), dict(zip(names, pairs, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_in_grey_no_state_looks_like_another(
    place: str, scheme: str, shown: Shown, visit: Callable[..., Visit], chromium: Browser
) -> None:
    shown.show(_six())
    address, cells = PLACES[place]
    opened = visit(shown.url + address, scheme=scheme)
    opened.without_colour()
    page = opened.page
    picture = base64.b64encode(page.screenshot()).decode()
    places = [cell.bounding_box() for cell in page.locator(cells).all()]
    context = chromium.new_context()
    greys = context.new_page().evaluate(CUT, [picture, places])
    context.close()
    for grey in greys:
        red, green, blue = grey[0::3], grey[1::3], grey[2::3]
        assert max(abs(r - b) + abs(r - g) for r, g, b in zip(red, green, blue, strict=True)) <= 6
    assert len(greys) == len(GPU_STATES)
    for one, other in combinations(range(len(greys)), 2):
        pixels = list(zip(greys[one][0::3], greys[other][0::3], strict=True))
        share = sum(abs(a - b) > 40 for a, b in pixels) / len(pixels)
        assert share > DIFFERENT_PIXELS, (GPU_STATES[one], GPU_STATES[other], share)
