from __future__ import annotations

import gzip
import threading

import pytest
from msgspec import structs
from web_client import BROWSER, get, site
from web_cluster import every_state, simulated

from gpumon.web.answers import accepts_gzip
from gpumon.web.renderings import MOST, PerRevision, Rendering

LIVE = ["/", "/status.json", "/status.txt", "/host/gpu-1", "/host/gpu-1.json", "/user/bob"]


@pytest.fixture
def app():
    return site(every_state())


@pytest.mark.parametrize("path", [*LIVE, "/healthz", "/nothing", "/static/gpumon.css"])
@pytest.mark.parametrize("encoding", ["", "gzip, deflate, br"])
def test_the_length_is_that_of_the_body(app, path, encoding):
    reply = get(app, path, accept_encoding=encoding)
    assert reply.headers["Content-Length"] == str(len(reply.body))


@pytest.mark.parametrize("path", [*LIVE, "/healthz", "/nothing", "/static/gpumon.css"])
def test_head_says_what_get_says_without_a_body(app, path):
    asked, head = get(app, path), get(app, path, method="HEAD")
    assert head.body == b""
    assert (head.code, head.headers) == (asked.code, asked.headers)


@pytest.mark.parametrize("path", LIVE)
def test_live_data_is_checked_again_each_time(app, path):
    reply = get(app, path)
    assert reply.headers["Cache-Control"] == "no-cache"
    etag = reply.headers["Etag"]
    assert etag.startswith('"r-1-')
    assert etag.endswith('"')
    again = get(app, path, if_none_match=etag)
    assert (again.code, again.body) == (304, b"")
    assert again.headers["Etag"] == etag
    assert again.headers["Cache-Control"] == "no-cache"
    assert again.headers["Vary"] == reply.headers["Vary"]


@pytest.mark.parametrize("sent", ["W/{}", '"other", {}', "*", '"a" , W/{} ,"b"'])
def test_a_tag_in_a_list_or_weakened_by_a_proxy_is_known(app, sent):
    etag = get(app, "/").headers["Etag"]
    assert get(app, "/", if_none_match=sent.format(etag)).code == 304


@pytest.mark.parametrize("sent", ['"r-0-html"', "r-1-html", "", '"', '"r-1-html'])
def test_another_tag_gets_the_page(app, sent):
    assert get(app, "/", if_none_match=sent).code == 200


def test_forms_and_encodings_have_tags_of_their_own(app):
    tags = [
        get(app, "/", accept=accept, accept_encoding=encoding).headers["Etag"]
        for accept in (BROWSER, "*/*", "application/json")
        for encoding in ("", "gzip")
    ]
    tags.append(get(app, "/?refresh=30").headers["Etag"])
    assert len(set(tags)) == len(tags)
    plain, zipped = tags[:2]
    assert get(app, "/", if_none_match=plain, accept_encoding="gzip").code == 200
    assert get(app, "/", if_none_match=zipped, accept_encoding="gzip").code == 304


@pytest.mark.parametrize("path", [*LIVE, "/static/gpumon.css"])
def test_bodies_are_compressed_for_those_who_accept_it(app, path):
    plain, zipped = get(app, path), get(app, path, accept_encoding="gzip")
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert gzip.decompress(zipped.body) == plain.body
    for reply in (plain, zipped):
        assert "Accept-Encoding" in reply.headers["Vary"].split(", ")


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("x-gzip", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.0, br", False),
        ("notgzip", False),
    ],
)
def test_accept_encoding_is_read_as_written(header, accepted):
    assert accepts_gzip(header) is accepted


def test_a_page_is_rendered_once_per_revision():
    status, details, _ = simulated(2)
    current, opened = [status], []

    def detail(name):
        opened.append(name)
        return details.get(name)

    app = site(lambda: current[0], detail)
    bodies = {get(app, "/host/gpu-01", accept_encoding=e).text for e in ("", "gzip", "", "gzip")}
    get(app, "/host/gpu-01", if_none_match='"old"')
    assert len(bodies) == 1
    assert opened == ["gpu-01"]
    current[0] = every_state()
    assert get(app, "/host/gpu-01").code == 404
    assert get(app, "/host/gpu-1").code == 200
    assert opened == ["gpu-01", "gpu-1"]


def test_a_new_revision_replaces_the_old_page():
    current = [every_state()]
    app = site(lambda: current[0])
    before = get(app, "/")
    current[0] = structs.replace(every_state(), revision="r-2", title="moved on")
    after = get(app, "/status.txt", if_none_match=before.headers["Etag"])
    assert after.code == 200
    assert after.text.startswith("moved on")


def test_many_threads_share_one_rendering():
    made = []
    renderings, start = PerRevision(MOST), threading.Barrier(8)

    def ask():
        start.wait(timeout=10)
        renderings.get("r", "page", lambda: made.append(1) or Rendering(b"x", "text/plain"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert made == [1]


def test_renderings_of_one_revision_are_bounded():
    renderings = PerRevision(MOST)
    for number in range(3 * MOST):
        renderings.get("r", number, lambda: Rendering(b"x", "text/plain"))
    assert len(renderings) <= MOST


def test_a_request_that_comes_late_does_not_throw_the_new_page_out():
    made: list[str] = []
    renderings = PerRevision(MOST)

    def ask(revision: str) -> None:
        renderings.get(
            revision, "page", lambda: made.append(revision) or Rendering(b"x", "text/plain")
        )

    for revision in ("r-1", "r-2", "r-1", "r-2", "r-1", "r-2", "r-3", "r-2", "r-3"):
        ask(revision)
    assert made == ["r-1", "r-2", "r-3"]
    assert list(renderings._kept) == ["r-2", "r-3"]


def test_many_threads_share_one_compression(monkeypatch):
    made: list[int] = []
    squeeze, start = gzip.compress, threading.Barrier(8)
    rendering = Rendering(b"x" * 1_000_000, "text/plain")

    def compress(*args, **kwargs):
        made.append(1)
        return squeeze(*args, **kwargs)

    monkeypatch.setattr("gpumon.web.renderings.gzip.compress", compress)

    def ask():
        start.wait(timeout=10)
        assert rendering.zipped

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert made == [1]


def test_a_revision_of_any_text_makes_a_sound_tag():
    odd = structs.replace(every_state(), revision='a"b\r\n c/é')
    etag = get(site(odd), "/").headers["Etag"]
    assert etag == '"a%22b%0D%0A%20c%2F%C3%A9-html"'


def test_static_files_are_cached_for_a_year_under_their_content(app):
    link = next(
        link for link in get(app, "/").text.split('"') if link.startswith("./static/gpumon")
    )
    reply = get(app, link[1:])
    assert reply.code == 200
    assert reply.headers["Content-Type"] == "text/css; charset=utf-8"
    assert reply.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    stale = get(app, "/static/gpumon.css?v=000000000000")
    assert stale.body == reply.body
    assert stale.headers["Cache-Control"] == "no-cache"
    assert get(app, link[1:], if_none_match=reply.headers["Etag"]).code == 304


def test_the_icon_is_there_under_both_names(app):
    assert get(app, "/favicon.ico").headers["Content-Type"] == "image/svg+xml"
    assert get(app, "/favicon.ico").body == get(app, "/static/favicon.svg").body
