"""Bad names and bad requests on every face: harmless, said in a sentence, never a failure."""

from __future__ import annotations

import json

import pytest
from metrics.promtool import complaints
from web_client import BROWSER, Page, get, page, site
from web_cluster import HOUR, NOW, cluster, every_state, gpu, holder, host

from gpumon.config import Config, HostEntry, WebConfig
from gpumon.model import Gpu, HostSnapshot, Process
from gpumon.web.app import make_app
from gpumon.web.links import segment

NAMES = {
    "markup": '"><script>alert(1)</script><img src=x onerror=alert(1)>',
    "quotes": "' \" ` onmouseover='alert(1)' \\",
    "escape codes": "\x1b]0;owned\x07\x1b[31m\x9b2J\x00",
    "right-to-left marks": "\u202egpj.exe\u2066\u200f",
    "10,000 characters": "x" * 10_000,
    "emoji": "\N{PILE OF POO}\N{ZERO WIDTH JOINER}\N{FIRE}",
    "line breaks": "a\r\nSet-Cookie: b=c\n\u2028",
    "formula": "=1+1|cmd",
}
PAGES = ["/", "/?view=map", "/host/{name}", "/user/{name}", "/host/{name}x", "/help", "/{name}"]
TEXTS = ["/", "/status.txt", "/host/{name}", "/user/{name}", "/host/{name}x", "/{name}"]
EARLIER_TEXTS = ["/?term=true", "/?term=true&detail=true", "/gpu_table?term=true"]
EARLIER_TEXTS += ["/states/{once}?term=true"]
JSONS = ["/status.json", "/host/{name}.json", "/user/{name}.json", "/host/{name}x.json", "/states"]
JSONS += ["/states/{once}", "/cluster_status", "/gpu_status", "/sd/prometheus", "/openapi.json"]


def app_of(name: str):
    """Return an application in which everything that can have a name is called `name`."""
    process = Process(
        pid=7, user=name, program=name, command=name, container=name, job=name, note=name,
        kinds=["compute"], gpu_memory_used_mib=9, state=name, started_from=name, user_by=name,
    )  # fmt: skip
    card = Gpu(index=0, uuid=name, name=name, error=name, processes=[process], hints=[name])
    detail = HostSnapshot(hostname=name, time=NOW, gpus=[card], errors=[name])
    held = gpu(0, "busy", name=name, model=name, reason=name, holders=[holder(name, program=name)])
    idle = gpu(1, "idle", name=name, model=name, holders=[holder(name)], since=NOW - 9 * HOUR)
    shown = host(name, [held, idle], reason=name, errors=[name], labels={name: name})
    status = cluster([shown], title=name)
    entry = HostEntry(name=name, source="self", address="self", labels={name: name})
    config = Config(hosts=[entry], web=WebConfig(title=name))
    return make_app(status=lambda: status, detail=lambda _: detail, config=config)


def addresses(patterns: list[str], name: str) -> list[str]:
    """Names have their own form in our addresses; vesta's are encoded once, and have no slash."""
    once = "other" if "/" in name else segment(name).replace("%25", "%")
    return [one.format(name=segment(name), once=once) for one in patterns]


@pytest.fixture(scope="module", params=NAMES.values(), ids=NAMES)
def named(request):
    return request.param, app_of(request.param)


def test_a_bad_name_is_no_markup_on_any_page(named):
    name, app = named
    tame = app_of("tame")
    targets = zip(addresses(PAGES, name), addresses(PAGES, "tame"), strict=True)
    for target, plain in targets:
        reply, expected = get(app, target), get(tame, plain)
        assert reply.code == expected.code < 500
        # The same tags as with a tame name; a near name is offered or not, as it happens.
        if reply.code == 200:
            assert Page(reply.text).shape == Page(expected.text).shape
        assert "<script>alert" not in reply.text
        assert "<img" not in reply.text
        assert not [c for c in reply.text if not c.isprintable() and c != "\n"]


def test_a_bad_name_is_one_printable_line_in_every_text(named):
    name, app = named
    for width, targets in ((100, TEXTS), (80, EARLIER_TEXTS)):
        for target in addresses(targets, name):
            reply = get(app, target, accept="*/*")
            assert reply.code < 500
            assert reply.headers["Content-Type"].startswith("text/plain") or "/states" in target
            assert reply.body.isascii(), target
            for line in reply.text.splitlines():
                assert line.isprintable(), target
                assert len(line) <= width or reply.code == 404, target


def test_a_bad_name_is_whole_and_valid_in_every_json(named):
    name, app = named
    for target in addresses(JSONS, name):
        reply = get(app, target)
        assert reply.code < 500
        json.loads(reply.body)
    assert json.loads(get(app, "/status.json").body)["hosts"][0]["name"] == name
    held = json.loads(get(app, f"/user/{segment(name)}.json").body)["gpus"]
    assert [(one["host"], one["gpu"]) for one in held] == [(name, 0), (name, 1)]


def test_a_bad_name_stays_inside_its_label_in_metrics(named):
    _, app = named
    told, tame = (get(one, "/metrics").text for one in (app, app_of("tame")))
    assert complaints(told) == ""
    assert [line.partition("{")[0] for line in told.splitlines() if "{" in line] == [
        line.partition("{")[0] for line in tame.splitlines() if "{" in line
    ]


REQUESTS = {
    "unknown words": "q=nonsense+more&sort=nonsense&view=nonsense&colors=nonsense&all=nonsense",
    "a page out of range": "page=99999&term=false",
    "a negative page": "page=-1",
    "a bad fetch_num": "fetch_num=-1&term=",
    "a huge query": "q=" + "free+" * 2_500,
    "a huge value": "page=" + "9" * 12_000 + "&refresh=" + "9" * 12_000,
    "hundreds of parameters": "&".join(f"a{n}=%ff" for n in range(500)),
    "line breaks": "q=%0d%0aX-Evil:1&refresh=5%0d%0aX-Evil:1&sort=%0d%0aX-Evil:1",
    "broken encoding": "q=%ff%fe%&%%%&=&refresh=%c2%b2&fetch_num=%00",
    "markup": "q=%3Cscript%3Ealert(1)%3C/script%3E&sort=%22%3E%3Cimg%3E&page=%3Cb%3E",
}
PLACES = ["/", "/status.txt", "/status.json", "/host/gpu-1", "/host/gpu-1.json", "/host/nobody"]
PLACES += ["/user/bob", "/user/bob.json", "/help", "/help.json", "/healthz", "/metrics", "/me"]
PLACES += ["/openapi.json", "/schema.json", "/sd/prometheus", "/states", "/states/gpu-1/"]
PLACES += ["/states/nobody", "/gpu_table", "/gpu_status", "/cluster_status", "/static/gpumon.css"]
PLACES += ["/nothing", "/me.css", "/gpus/", "/lab", "/lab/"]


@pytest.fixture(scope="module")
def served():
    return site(every_state(), prefix="/lab")


@pytest.mark.parametrize("query", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "BREW"])
def test_no_request_makes_any_address_fail(served, query, method):
    for place in PLACES:
        for accept in (BROWSER, "*/*", "application/json") if method == "GET" else (BROWSER,):
            reply = get(served, f"{place}?{query}", accept=accept, method=method)
            assert reply.code in (200, 302, 400, 404, 405), place
            assert not [v for v in reply.headers.values() if "\r" in v or "\n" in v]
            assert "X-Evil" not in reply.headers
            if reply.headers["Content-Type"].startswith("text/html"):
                assert "<script>alert" not in reply.text
                assert "<img" not in reply.text
            if reply.code >= 400 and method != "HEAD":
                assert reply.text.strip(), f"{place} says nothing"


@pytest.mark.parametrize("place", ["/lab", "/gpu_table"])
def test_where_a_reader_is_sent_on_nothing_typed_leaves_its_place(served, place):
    for query in REQUESTS.values():
        location = get(served, f"{place}?{query}").headers["Location"]
        assert location.isascii()
        assert location.isprintable()
        assert location.startswith(("lab/", "./", "../"))
        assert not {" ", "<", ">", '"'} & set(location)


@pytest.mark.parametrize("place", PLACES)
def test_no_answer_is_kept_without_being_asked_for_again(served, place):
    for accept in (BROWSER, "*/*", "application/json"):
        assert get(served, place, accept=accept).headers["Cache-Control"] in (
            "no-store",
            "no-cache",
        )


def test_an_unknown_filter_word_is_repeated_as_text():
    told = page(site(every_state()), "/?q=%3Cscript%3Ealert(1)%3C/script%3E")
    assert "<script>alert(1)</script>" in told.words
