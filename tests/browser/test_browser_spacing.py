"""Readers may space text out as WCAG 2.2, 1.4.12 says: nothing is cut off or covered by it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browsing import Visit

pytestmark = pytest.mark.system

SPACED = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`* { line-height: 1.5 !important; letter-spacing: 0.12em !important;
    word-spacing: 0.16em !important } p { margin-bottom: 2em !important }`);
  document.adoptedStyleSheets = [sheet];
  for (const one of document.querySelectorAll("details")) one.open = true;
}"""

TROUBLES = """() => {
  const said = [], boxes = [];
  const name = (e) => `<${e.nodeName.toLowerCase()} class="${e.className}"> ${e.textContent}`
    .replace(/\\s+/g, " ").slice(0, 80);
  // A remark of one line ends in an ellipsis, spaced or not; the list below has it whole.
  const whole = (e) => e.closest(".one")
    && document.querySelector("#waste").textContent.includes(e.textContent);
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, parent = node.parentElement;
    if (!node.data.trim() || parent.closest(".sr, .skip, script") || !parent.checkVisibility())
      continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of (parent.closest(".one") ?? range).getClientRects()) if (box.width > 1) {
      boxes.push([box, parent]);
      if (parent.closest(".one") && !whole(parent)) said.push(`nowhere whole: ${name(parent)}`);
      for (let out = parent; out !== document.body; out = out.parentElement) {
        const style = getComputedStyle(out), around = out.getBoundingClientRect();
        const hides = /hidden|clip/;
        const cutX = hides.test(style.overflowX), cutY = hides.test(style.overflowY);
        if ((cutX && (box.right > around.right + 1 || box.left < around.left - 1))
          || (cutY && (box.bottom > around.bottom + 3 || box.top < around.top - 3)))
          said.push(`cut: ${name(parent)}`);
        if (/auto|scroll/.test(style.overflowX)) break;  // it can be scrolled to
      }
    }
  }
  boxes.sort(([a], [b]) => a.top - b.top);
  boxes.forEach(([one, a], at) => {
    for (const [other, b] of boxes.slice(at + 1)) {
      if (other.top >= one.bottom) break;
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      // Line boxes may touch; letters do when they share a third of a line.
      if (wide > 1 && high > 5 && a.closest("header") === b.closest("header"))
        said.push(`covered: ${name(a)} | ${name(b)}`);
    }
  });
  return said;
}"""
PAGES = {
    "front": (7, ""),
    "opened": (1, ""),
    "host": (7, "host/gpu-03"),
    "user": (7, "user/dana"),
    "help": (7, "help"),
    "rows": (63, ""),
    "map": (63, "?view=map"),
}


@pytest.mark.parametrize("name", PAGES)
def test_spaced_text_is_neither_cut_nor_covered(
    name: str, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    hosts, address = PAGES[name]
    opened = visit(demo(hosts) + address)
    opened.page.evaluate(SPACED)
    for width in (1440, 768, 320):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.picture(f"spaced-{name}-{width}")
        assert opened.page.evaluate(TROUBLES) == [], width
        assert opened.overflow() <= 0, width


@pytest.mark.parametrize(
    ("fault", "word"),
    [(".c{width:9px!important}", "cut"), (".who{position:relative;left:-6em}", "covered")],
)
def test_what_is_cut_or_covered_is_found(
    fault: str, word: str, visit: Callable[..., Visit], demo: Callable[[int], str]
) -> None:
    page = visit(demo(7)).page
    assert page.evaluate(TROUBLES) == []
    page.evaluate(
        "rule => { const sheet = new CSSStyleSheet(); sheet.replaceSync(rule);"
        "document.adoptedStyleSheets = [sheet]; }",
        fault,
    )
    assert any(one.startswith(word) for one in page.evaluate(TROUBLES))
