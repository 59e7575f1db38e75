"""Filter words and orders: the same hosts on page, text and JSON, and nothing typed is an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_client import get, page, site
from web_cluster import cluster, every_state, gpu, holder, host, instance

from gpumon.cluster.order import COLUMNS, is_order, ordered
from gpumon.cluster.query import MOST_LETTERS, MOST_WORDS, parse, select

A100 = {"model": "A100 40G", "name": "NVIDIA A100-SXM4-40GB", "memory_total_mib": 40_960}


def _mixed():
    bob = {"holders": [holder("bob")]}
    ghost = {"holders": [], "reason": "62464 MiB in use, no process visible"}
    silent = {"state": "down", "reason_kind": "refused", "reason": "refused"}
    parts = [instance(0, "busy"), instance(1)]
    return cluster(
        [
            host("gpu-1", [gpu(index) for index in range(4)], labels={"room": "b12"}),
            host("gpu-2", [gpu(0), gpu(1), gpu(2, "busy"), gpu(3, "busy", **bob)]),
            host("gpu-10", [gpu(0, **A100), gpu(1, "idle", **A100, **bob)], labels={"room": "c3"}),
            host("mig-1", [gpu(0, "busy", mig_mode=True, mig=parts, utilization_percent=None)]),
            host("gone-1", [gpu(0, "unknown", **bob)], **silent),
            host("mute-1", [], gpu_count=None, errors=["The driver does not answer."]),
            host("bad-1", [gpu(0, "fault", reason="lost"), gpu(1, "busy", **ghost)]),
        ]
    )


def _names(typed, status=None):
    return [one.name for one in select(status or _mixed(), parse(typed)).hosts]


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("", ["gpu-1", "gpu-2", "gpu-10", "mig-1", "gone-1", "mute-1", "bad-1"]),
        ("4x h100", ["gpu-1"]),
        ("2x h100", ["gpu-1", "gpu-2"]),
        ("free", ["gpu-1", "gpu-2", "gpu-10", "mig-1"]),
        ("free a100", ["gpu-10"]),
        ("FREE H100", ["gpu-1", "gpu-2", "mig-1"]),
        ("@bob", ["gpu-2", "gpu-10", "gone-1"]),
        ("@bob idle", ["gpu-10"]),
        ("bob", ["gpu-2", "gpu-10", "gone-1"]),
        ("@zoe", []),
        ("gpu-1", ["gpu-1", "gpu-10"]),
        ("gpu-?", ["gpu-1", "gpu-2"]),
        ("*-1", ["gpu-1", "mig-1", "gone-1", "mute-1", "bad-1"]),
        ("mute", ["mute-1"]),
        (">=80g", ["gpu-1", "gpu-2", "gone-1", "bad-1"]),
        ("<=40g free", ["gpu-10", "mig-1"]),
        ("1g.10gb free", ["mig-1"]),
        ("1x 1g.10gb", ["mig-1"]),
        ("1x mig", ["mig-1"]),
        ("2x mig", []),
        ("1x", ["gpu-1", "gpu-2", "gpu-10"]),
        ("room:b12", ["gpu-1"]),
        ("ROOM:*", ["gpu-1", "gpu-10"]),
        ("c3", ["gpu-10"]),
        ("down", ["gone-1"]),
        ("fresh fault", ["bad-1"]),
        ("broken", ["bad-1"]),
        ("wasted", ["gpu-10", "bad-1"]),
        ("unknown", ["gone-1", "mute-1"]),
        ("drained", []),
    ],
)
def test_words_choose_hosts(typed, names):
    assert _names(typed) == names


def test_a_stale_or_silent_gpu_is_never_found_as_free():
    assert "gone-1" not in _names("free")
    assert "mute-1" not in _names("free")
    assert "mute-1" not in _names("1x")


def test_words_about_gpus_must_fit_one_and_the_same_gpu():
    assert _names("idle h100") == []


def test_an_unknown_word_is_said_and_left_out():
    found = select(_mixed(), parse("h1000 free"))
    assert [one.name for one in found.hosts] == ["gpu-1", "gpu-2", "gpu-10", "mig-1"]
    assert found.query_remarks == ["Nothing here is called 'h1000': that word was left out."]
    alone = select(_mixed(), parse("zzz"))
    assert len(alone.hosts) == 7


def test_sums_are_over_the_hosts_that_fit():
    found = select(_mixed(), parse("a100"))
    assert (found.totals.gpus.total, found.totals.hosts) == (2, 1)
    assert [(one.model, one.counts.free) for one in found.models] == [("A100 40G", 1)]
    assert [one.user for one in found.users] == ["bob"]


def test_page_text_and_json_give_the_same_hosts():
    app = site(_mixed())
    for typed, names in (("4x+h100", ["gpu-1"]), ("@bob+idle", ["gpu-10"]), ("@zoe", [])):
        shown = page(app, f"/?q={typed}")
        rows = [
            attrs["data-host"] for tag, attrs in shown.tags if tag == "tr" and "data-host" in attrs
        ]
        answer = json.loads(get(app, f"/status.json?q={typed}").body)
        assert rows == names
        assert [one["name"] for one in answer["hosts"]] == names
        assert answer["query"] == typed.replace("+", " ")
        text = get(app, f"/?q={typed}", accept="*/*").text
        assert f"filter: {typed.replace('+', ' ')}" in text
        assert [name for name in ("gpu-1", "gpu-10", "mig-1") if f"\n{name} " in text] == names


def test_the_page_says_what_the_filter_leaves_and_how_to_get_rid_of_it():
    words = page(site(_mixed()), "/?q=a100+nonsense&sort=bogus&view=globe&page=9&all=x").words
    assert "1 of 7 hosts fit the filter a100 nonsense" in words
    assert "Nothing here is called 'nonsense'" in words
    assert "There is no column 'bogus' to sort by." in words
    assert "view=globe is not known: try rows or map." in words
    assert "There is no page 9: this is the last." in words
    assert "Show all hosts" in words
    none = page(site(_mixed()), "/?q=%40zoe")
    assert "No host fits the filter." in none.words


def test_the_header_counts_the_whole_cluster_and_leads_to_its_filters():
    shown = page(site(_mixed()), "/?q=a100&sort=-free")
    links = [attrs for tag, attrs in shown.tags if tag == "a" and "data-state" in attrs]
    assert links[0]["data-state"] == "free"
    assert links[0]["href"] == "./?q=free&sort=-free"
    assert "7 free" in shown.words
    current = [one for one in page(site(_mixed()), "/?q=idle").tags if "aria-current" in one[1]]
    assert [attrs["data-state"] for _, attrs in current] == ["idle"]


def test_the_form_keeps_order_and_view():
    tags = page(site(_mixed()), "/?q=a100&sort=-free&view=rows").tags
    hidden = {a["name"]: a["value"] for t, a in tags if t == "input" and a.get("type") == "hidden"}
    assert hidden == {"sort": "-free", "view": "rows"}
    (field,) = [attrs for tag, attrs in tags if tag == "input" and attrs["name"] == "q"]
    assert field["value"] == "a100"


@pytest.mark.parametrize(
    ("order", "first", "last"),
    [
        ("host", "bad-1", "mute-1"),
        ("-host", "mute-1", "bad-1"),
        ("-free", "gpu-1", "mute-1"),
        ("free", "bad-1", "mute-1"),
        ("-users", "gpu-2", "mute-1"),
        ("-cpu", "gpu-1", "gone-1"),
        ("-ram", "gpu-1", "gone-1"),
        ("-state", "gone-1", "bad-1"),
    ],
)
def test_orders_put_what_is_not_known_last(order, first, last):
    names = [one.name for one in ordered(_mixed(), order).hosts]
    assert (names[0], names[-1]) == (first, last)
    assert sorted(names) == sorted(_names(""))


def test_host_names_sort_as_people_count():
    names = [one.name for one in ordered(_mixed(), "host").hosts]
    assert names.index("gpu-2") < names.index("gpu-10")


def test_headings_lead_to_an_order_then_its_reverse_then_back():
    app = site(_mixed())

    def heading(target):
        shown = page(app, target).tags
        at = [n for n, (tag, attrs) in enumerate(shown) if "#hosts" in (attrs.get("href") or "")]
        return next(
            (shown[n - 1][1].get("aria-sort"), shown[n][1]["href"])
            for n in at
            if "free" in (shown[n - 1][1].get("class") or "")
            or (shown[n - 1][1].get("class") or "") == "n f"
        )

    assert heading("/") == (None, "./?sort=-free#hosts")
    assert heading("/?sort=-free") == ("descending", "./?sort=free#hosts")
    assert heading("/?sort=free") == ("ascending", "./#hosts")


def test_every_column_has_an_order_for_every_state_of_a_host():
    for column in COLUMNS:
        for order in (column, f"-{column}"):
            assert is_order(order)
            assert len(ordered(every_state(), order).hosts) == 5


@given(st.text(max_size=400))
def test_whatever_is_typed_is_bounded_and_no_error(typed):
    query = parse(typed)
    assert len(query.words) <= MOST_WORDS
    assert len(query.text) <= MOST_LETTERS
    assert query.text.isprintable()
    select(_mixed(), query)


def test_a_long_filter_is_cut_and_says_so():
    query = parse("a" * 30 + " " + "b" * 10_000)
    assert query.words == ("a" * 30,)
    assert "longer than 200 letters" in query.remarks[0]
    many = parse(" ".join(f"w{n}" for n in range(50)))
    assert len(many.words) == MOST_WORDS
    assert "first 12 words" in many.remarks[0]


HOSTILE = [
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "%22%20onfocus=alert(1)%20x=%22",
    "%1b%5d0;owned%07",
    "%e2%80%aegpj.exe",
    "%0d%0aSet-Cookie:%20a=b",
    "%ff%fe%00",
    "x" * 10_000,
    "%f0%9f%98%80" * 300,
    "%5B%5B%5B*%3F%5D!a-",
    "@",
    ":",
    "999x",
    ">=99999g",
    "%25" * 50,
    "{{7*7}}",
    "+".join(["free"] * 2_000),
]


@pytest.mark.parametrize("typed", HOSTILE)
@pytest.mark.parametrize("name", ["q", "sort", "view", "page", "colors", "all", "refresh"])
def test_hostile_parameters_are_harmless(typed, name):
    app = site(_mixed())
    for accept in ("text/html", "*/*", "application/json"):
        reply = get(app, f"/?{name}={typed}", accept=accept)
        assert reply.code == 200
        assert "<script>alert" not in reply.text or "html" not in reply.headers["Content-Type"]
        assert "Set-Cookie" not in reply.headers
        assert all("\n" not in value and "\r" not in value for value in reply.headers.values())
        assert "\x1b" not in reply.text
        assert "\u202e" not in reply.text
    assert len(get(app, f"/?{name}={typed}").body) < 40_000
    read = page(app, f"/?{name}={typed}")
    assert not any(key.startswith("on") for _, attrs in read.tags for key in attrs)


@pytest.mark.parametrize("page_", ["0", "-1", "1e9", "99999999999999999999", "%C2%B2", "9"])
def test_a_page_out_of_range_is_the_nearest_and_says_so(page_):
    shown = page(site(_mixed()), f"/?page={page_}")
    assert "There is no page" in shown.words
    assert len([1 for tag, attrs in shown.tags if tag == "tr" and "data-host" in attrs]) == 7


def test_thousands_of_filters_do_not_drive_out_the_common_pages():
    made = []
    status = _mixed()

    def detail(name):
        made.append(name)

    app = site(status, detail)
    get(app, "/host/gpu-1")
    for number in range(300):
        get(app, f"/host/gpu-1?q=x{number}")
    asked = len(made)
    get(app, "/host/gpu-1")
    assert len(made) == asked
