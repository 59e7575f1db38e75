"""One rule for all addresses: a page for browsers, text for curl, JSON by suffix or Accept."""

from __future__ import annotations

import json

import pytest
from web_client import BROWSER, get, site
from web_cluster import every_state

from gpumon.config import Config, HostEntry, WebConfig
from gpumon.web.app import make_app

JSON, TEXT, HTML = "application/json", "text/plain; charset=utf-8", "text/html; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"

TWINS = ["/", "/index", "/gpus", "/gpus/", "/host/gpu-1", "/user/bob", "/help"]
"""Addresses with all three forms."""
SUFFIXED = {
    "/": "/status.json", "/host/gpu-1": "/host/gpu-1.json", "/user/bob": "/user/bob.json",
    "/help": "/help.json",
}  # fmt: skip
FIXED = {
    "/status.json": JSON, "/status.txt": TEXT, "/host/gpu-1.json": JSON, "/user/bob.json": JSON,
    "/help.json": JSON, "/healthz": JSON, "/openapi.json": JSON, "/schema.json": JSON,
    "/metrics": METRICS, "/sd/prometheus": JSON, "/me.css": "text/css; charset=utf-8",
    "/static/gpumon.css": "text/css; charset=utf-8", "/favicon.ico": "image/svg+xml",
    "/?term=true": TEXT, "/states": JSON, "/states/gpu-1/": JSON, "/gpu_table?term=true": TEXT,
    "/cluster_status": JSON, "/gpu_status": JSON,
}  # fmt: skip
"""Addresses with one form, whoever asks."""
EVERY = [*TWINS, *FIXED]
SENT_ON = ["/me", "/gpu_table"]
"""Addresses that send readers to another one."""
ACCEPTS = [(BROWSER, HTML), ("*/*", TEXT), ("", TEXT), ("application/json", JSON)]


@pytest.fixture(scope="module")
def app():
    config = Config(hosts=[HostEntry(name="gpu-1", source="self", address="self")], web=WebConfig())
    status = every_state()
    return make_app(status=lambda: status, detail=lambda _: None, config=config)


def test_no_address_is_missing_here(app):
    paths = [*(path.partition("?")[0] for path in EVERY), *SENT_ON, "/gpu_table/", "/states/"]
    paths += ["/states/gpu-1"]
    seen = {app.match({"PATH_INFO": path, "REQUEST_METHOD": "GET"})[0].rule for path in paths}
    assert seen == {route.rule for route in app.routes}


@pytest.mark.parametrize("path", TWINS)
@pytest.mark.parametrize(("accept", "kind"), ACCEPTS)
def test_everybody_gets_the_form_that_suits(app, path, accept, kind):
    reply = get(app, path, accept=accept)
    assert (reply.code, reply.headers["Content-Type"]) == (200, kind)
    assert {"Accept", "Accept-Encoding"} <= set(reply.headers["Vary"].split(", "))
    if kind == TEXT:
        assert reply.body.isascii()
        assert max(map(len, reply.text.splitlines())) <= 100
    if kind == JSON:
        json.loads(reply.body)


@pytest.mark.parametrize(("path", "suffixed"), SUFFIXED.items())
def test_the_suffix_gives_what_accept_gives(app, path, suffixed):
    by_suffix = get(app, suffixed)
    assert by_suffix.body == get(app, path, accept="application/json").body
    assert "Accept" not in by_suffix.headers["Vary"].split(", ")


@pytest.mark.parametrize(("path", "kind"), FIXED.items())
@pytest.mark.parametrize("accept", [BROWSER, "*/*", "application/json"])
def test_an_address_with_one_form_gives_it_to_everybody(app, path, kind, accept):
    reply = get(app, path, accept=accept)
    assert (reply.code, reply.headers["Content-Type"]) == (200, kind)
    assert reply == get(app, path)


@pytest.mark.parametrize("path", [*EVERY, "/nothing", "/host/nobody", "/nothing.json"])
@pytest.mark.parametrize("accept", [BROWSER, "*/*", "application/json"])
def test_head_gives_the_same_headers_and_nothing_else(app, path, accept):
    whole, head = get(app, path, accept=accept), get(app, path, accept=accept, method="HEAD")
    assert head.body == b""
    assert (head.code, head.headers) == (whole.code, whole.headers)
    assert int(head.headers["Content-Length"]) == len(whole.body)


@pytest.mark.parametrize("path", [*EVERY, *SENT_ON])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])
def test_an_address_that_is_only_read_says_so(app, path, method):
    for accept, kind in ACCEPTS:
        reply = get(app, path, method=method, accept=accept)
        assert reply.code == 405
        assert reply.headers["Allow"] == "GET, HEAD"
        assert "use GET or HEAD" in reply.text
        assert reply.headers["Content-Type"] == (JSON if path.endswith(".json") else kind)
        assert "Accept" in reply.headers["Vary"]


@pytest.mark.parametrize(
    ("path", "first", "helps"),
    [
        ("/nothing", "There is nothing at this address.", "/help lists what can be asked."),
        ("/host/zzzzzzz", "There is no host 'zzzzzzz' here.", "/status.txt"),
        ("/host/gpu-11", "There is no host 'gpu-11' here.", "gpu-1"),
    ],
)
def test_an_address_without_anything_helps_in_all_three_forms(app, path, first, helps):
    html, plain, told = (get(app, path, accept=accept) for accept in (BROWSER, "*/*", JSON))
    assert {html.code, plain.code, told.code} == {404}
    assert all("Accept" in one.headers["Vary"] for one in (html, plain, told))
    words = html.text.replace("&#039;", "'")
    assert first in words
    assert '">All hosts</a>' in words
    assert '">Help</a>' in words
    assert first in plain.text
    assert helps in plain.text
    answer = json.loads(told.body)
    assert first in answer["error"]
    assert helps in answer["error"] or helps in answer["near"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("q=nonsense", "nonsense"),
        ("sort=nonsense", "There is no column 'nonsense' to sort by."),
        ("view=nonsense", "view=nonsense is not known: try rows or map."),
        ("page=-1", "There is no page '-1'."),
        ("page=99", "99"),
        ("page=x", "There is no page 'x'."),
        ("page=" + "9" * 500, "There is no page"),
    ],
)
def test_what_an_address_asks_for_in_vain_is_said_in_all_three_forms(app, query, words):
    for accept in (BROWSER, "*/*", "application/json"):
        reply = get(app, f"/?{query}", accept=accept)
        assert reply.code == 200
        assert words in reply.text.replace("&#039;", "'"), accept
    remarks = json.loads(get(app, f"/status.json?{query}").body)["query_remarks"]
    assert len(remarks) == 1
    assert words in remarks[0]


def test_text_and_json_say_that_they_have_no_pages(app):
    words = "page=99 changes nothing here: all is on one page."
    assert words in get(app, "/?page=99", accept="*/*").text
    assert json.loads(get(app, "/status.json?page=99").body)["query_remarks"] == [words]
    assert "changes nothing" not in get(app, "/status.txt?page=1").text


def test_the_help_of_curl_holds_what_can_be_asked():
    told = get(site(every_state()), "/help", accept="*/*").text
    words = ["4x h100", ">=40g", "@alice", "room:b12", "wasted", "status.json", "host/NAME"]
    words += ["?sort=-free", "openapi.json", "not used for 30 minutes", "wrong use"]
    assert [word for word in words if word not in told] == []
    assert [line for line in told.splitlines() if line.startswith(("__ ", "!! ", "-- ", "?  "))]
