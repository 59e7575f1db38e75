"""The map of many hosts: every host a link, every GPU a square, small as it travels."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from web_client import Page, get, page, site
from web_cluster import cluster, every_state, gpu, holder, host, instance, simulated

import gpumon.web

CSS = (Path(gpumon.web.__file__).parent / "static" / "gpumon.css").read_text()


def _many(hosts, *, gpus=1):
    return cluster([host(f"gpu-{n:04}", [gpu(i) for i in range(gpus)]) for n in range(hosts)])


def _links(shown: Page):
    return {a["data-host"]: a for tag, a in shown.tags if tag == "a" and "data-host" in a}


def test_above_two_hundred_hosts_the_map_stands_in_place_of_the_rows():
    rows, as_map = page(site(_many(200)), "/"), page(site(_many(201)), "/")
    assert not _links(rows)
    assert len(_links(as_map)) == 201
    assert not [1 for tag, attrs in as_map.tags if tag == "tr" and "data-host" in attrs]
    assert "./?view=rows" in as_map.links()
    assert "./?view=map" in rows.links()


def test_the_address_chooses_rows_or_map():
    app = site(_many(201))
    assert not _links(page(app, "/?view=rows"))
    assert len(_links(page(site(every_state()), "/?view=map"))) == 5
    assert not _links(page(app, "/?q=gpu-000*"))


def test_rows_come_two_hundred_a_page():
    app = site(_many(401))
    pages = [page(app, f"/?view=rows&page={n}") for n in (1, 2, 3, 4)]
    counts = [sum(t == "tr" and "data-host" in a for t, a in one.tags) for one in pages]
    assert counts == [200, 200, 1, 1]
    assert "There is no page 4: this is the last." in pages[3].words
    assert "./?view=rows&page=3#hosts" in pages[0].links()
    assert "./?view=rows#hosts" in pages[1].links()


def test_a_square_tells_the_state_and_a_sentence_tells_it_in_words():
    shown = page(site(every_state()), "/?view=map")
    links = _links(shown)
    assert links["gpu-1"]["href"] == "./host/gpu-1"
    assert links["gpu-1"]["title"] == (
        "3 busy, 2 free: 2 and 5, 1 idle: 3, 1 fault: 4, 1 unknown: 7"
    )
    assert links["gpu-4"]["title"].startswith("down: 2 unknown: 0 and 1")
    assert links["gpu-5"]["title"] == "never: gpu-5: no such name"
    html = get(site(every_state()), "/?view=map").text
    squares = re.search(r'data-host="gpu-1".*?<s aria-hidden="true">(.*?)</s>', html)[1]
    assert re.findall(r'class="([a-z]+)', squares) == [
        "busy", "busy", "free", "idle", "fault", "free", "busy", "unknown",
    ]  # fmt: skip
    # A host that tells of no GPU is unknown, not empty.
    silent = re.search(r'data-host="gpu-5".*?<s aria-hidden="true">(.*?)</s>', html)[1]
    assert silent == '<i class="unknown"></i>'


def test_states_in_the_map_differ_by_border_fill_and_sign():
    rules = {
        state: " ".join(re.findall(rf"\.map \.{state}(?:::before)?\{{(.*?)\}}", CSS))
        for state in ("free", "busy", "idle", "fault", "unknown", "drained")
    }
    assert "3px solid" in rules["free"]
    assert "background" not in rules["free"]
    assert "linear-gradient" in rules["busy"]
    assert "dashed" in rules["idle"]
    assert "dotted" in rules["unknown"]
    for state, sign in (("idle", "z"), ("fault", "!"), ("unknown", "?"), ("drained", "–")):
        assert f'content:"{sign}"' in rules[state]


def test_a_busy_square_is_told_from_a_free_one_however_little_it_is_used():
    assert "max(8%,var(--full,0%))" in re.search(r"\.map \.busy\{(.*?)\}", CSS)[1]


def test_a_use_that_is_not_known_is_no_small_one_in_the_map():
    parts = [instance(0, "busy")]
    mig = gpu(1, "busy", mig_mode=True, mig=parts, utilization_percent=None)
    status = cluster([host("a", [gpu(0, "busy", utilization_percent=0), mig])])
    html = get(site(status), "/?view=map").text
    assert '<i class="busy u0"></i><i class="busy held"></i>' in html
    assert '.map .held::before{content:"#"}' in CSS


def test_hosts_are_grouped_by_model_and_those_without_stand_last():
    headings = re.findall(r"<h3>(.*?) <", get(site(every_state()), "/?view=map").text)
    assert headings == ["A100 80G", "H100 80G", "GPUs not known"]


def test_hostile_names_stay_text_in_the_map():
    names = ['"><script>alert(1)</script>', "a\x1b[31m\u202e", "x" * 10_000, "名前 😀"]
    shown = page(site(cluster([host(name, [gpu(0)]) for name in names])), "/?view=map")
    assert len(_links(shown)) == 4
    assert sum(tag == "script" for tag, _ in shown.tags) == 1
    assert "\x1b" not in "".join(shown.pieces)


def test_a_thousand_hosts_are_small_when_they_travel():
    status, details, _ = simulated(1000)
    reply = get(site(status, details.get), "/", accept_encoding="gzip")
    assert len(reply.body) < 40_000
    assert len(gzip.decompress(reply.body)) < 400_000
    rows = get(site(status, details.get), "/?view=rows", accept_encoding="gzip")
    assert len(rows.body) < 70_000


def test_long_lists_of_users_and_waste_are_fetched_when_somebody_wants_them():
    held = [[holder(f"user{n:03}")] for n in range(200)]
    hosts = [host(f"gpu-{n}", [gpu(0, "idle", holders=held[n])]) for n in range(200)]
    app = site(cluster(hosts))
    short, users = page(app, "/"), page(app, "/?all=users")
    waste = page(app, "/?all=waste")
    assert "All 200 users" in short.words
    assert "All 200 rows" in short.words
    assert "user199" not in " ".join(link for row in short.rows for link in row[:1])
    assert users.row("user199")[1] == "1"
    assert sum(row[0].strip() == "idle" for row in waste.rows if row) == 200
