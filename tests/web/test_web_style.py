"""Colours, sizes and what a strict Content-Security-Policy allows."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from web_client import get, page, site
from web_cluster import cluster, gpu, holder, host, simulated

import gpumon.web

CSS = (Path(gpumon.web.__file__).parent / "static" / "gpumon.css").read_text()
SCRIPT = (Path(gpumon.web.__file__).parent / "static" / "gpumon.js").read_text()
STATES = ["busy", "idle", "fault", "unknown"]
TINTS = [f"{state}-tint" for state in STATES]


def _tokens(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{6})", block))


LIGHT = _tokens(re.search(r"^:root\{(.*?)\}", CSS, re.S | re.M)[1])
DARK = _tokens(re.search(r"prefers-color-scheme:dark\)\{:root\{(.*?)\}", CSS, re.S)[1])


def _luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


TEXT_PAIRS = [
    *[("text", ground) for ground in ("bg", "surface", *TINTS)],
    *[
        (word, ground)
        for word in ("muted", "link", "free", *STATES)
        for ground in ("bg", "surface")
    ],
    *[(state, f"{state}-tint") for state in STATES],
]


def test_both_themes_name_the_same_colours():
    assert set(LIGHT) == set(DARK)
    assert len(LIGHT) == 16


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "ground"), TEXT_PAIRS)
def test_text_can_be_read_on_what_it_stands_on(theme, front, ground):
    assert _contrast(theme[front], theme[ground]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("border", ["border", "free", *STATES])
@pytest.mark.parametrize("ground", ["bg", "surface"])
def test_borders_can_be_seen(theme, border, ground):
    assert _contrast(theme[border], theme[ground]) >= 3


def test_contrast_is_computed_as_in_the_standard():
    assert _contrast("#000000", "#ffffff") == pytest.approx(21)
    assert _contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_states_differ_by_more_than_colour():
    borders = {
        state: re.search(rf"\.c\.{state},\.map \.{state}\{{(.*?)\}}", CSS)[1]
        for state in ("free", "idle", "unknown")
    }
    assert "3px solid" in borders["free"]
    assert "dashed" in borders["idle"]
    assert "dotted" in borders["unknown"]
    assert "background:var(--fault);color:var(--bg)" in CSS


def test_style_sheet_and_script_are_small_and_take_nothing_from_elsewhere():
    assert len(CSS.encode()) < 10_000
    assert len(SCRIPT.splitlines()) < 200
    assert max(map(len, SCRIPT.splitlines())) <= 100
    assert len(gzip.compress(CSS.encode())) + len(gzip.compress(SCRIPT.encode())) < 8_000
    assert "url(" not in CSS
    assert "@import" not in CSS
    assert "http" not in CSS
    assert "opacity" not in CSS


def test_pages_obey_their_own_policy():
    status, details, _ = simulated(8)
    app = site(status, details.get)
    paths = ["/", "/?view=map", "/help", "/host/gpu-01", "/host/gpu-03", "/user/bob"]
    for path in (*paths, "/host/none"):
        read = page(app, path) if path != "/host/none" else None
        html = get(app, path).text
        assert re.findall(r"<script[^>]*>[^<]*", html) == re.findall(
            r'<script src="(?:\.\./)*(?:\./)?static/gpumon\.js\?v=[0-9a-f]{12}">', html
        )
        assert "<style" not in html
        assert "http:" not in html
        assert "https:" not in html
        for _, attributes in read.tags if read else []:
            assert "style" not in attributes
            assert not any(name.startswith("on") for name in attributes)


def test_every_class_that_a_page_uses_for_a_state_is_in_the_style_sheet():
    for state in ("free", "busy", "idle", "fault", "unknown", "drained"):
        assert re.search(rf"\.c\.{state}[,{{]", CSS), state
    for tenths in range(11):
        assert f".u{tenths}{{--full:{10 * tenths}%}}" in CSS


def _crowded(hosts: int):
    """Hosts of eight GPUs with two users each."""
    return cluster(
        [
            host(
                f"gpu-{number:04}",
                [
                    gpu(
                        index,
                        ("busy", "idle", "free", "busy")[(number + index) % 4],
                        utilization_percent=(7 * number + 13 * index) % 101,
                        holders=[
                            holder(f"user{(number * index) % 70:02}", hours=1 + index * 3.7),
                            holder(f"user{(number + 3 * index) % 70:02}", hours=2 + number * 0.37),
                        ],
                    )
                    for index in range(8)
                ],
            )
            for number in range(hosts)
        ]
    )


@pytest.mark.parametrize(("hosts", "limit"), [(1, 5_000), (50, 60_000), (63, 15_000)])
def test_a_page_is_small_when_it_travels(hosts, limit):
    reply = get(site(_crowded(hosts)), "/", accept_encoding="gzip")
    assert len(reply.body) < limit
    assert len(gzip.decompress(reply.body)) > 5_000


def test_details_of_every_gpu_are_in_the_page_of_a_small_cluster_only():
    tiny, small, large = (get(site(_crowded(count)), "/").text for count in (2, 50, 51))
    assert tiny.count(" open><summary>") == 2
    assert small.count('"><summary><span class="strip"') == 50
    assert " open><summary>" not in small
    assert '<table class="gpus">' not in large
