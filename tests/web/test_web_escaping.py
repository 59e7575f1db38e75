from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from web_client import Page, get, site
from web_cluster import every_state, simulated
from web_hostile import HOSTILE, renamed

from gpumon.cluster.status import ClusterStatus
from gpumon.model import HealthEvent, HostSnapshot
from gpumon.web.links import segment


def _cluster(word: str) -> tuple[Any, list[str], list[str]]:
    """Return an application whose every text begins with `word`, its hosts and its users."""
    numbers: dict[str, int] = {}
    sample, details, _ = simulated(6)
    merged = every_state()
    for host in merged.hosts:
        for gpu in host.gpus:
            gpu.warnings.append("a warning")
            for holder in gpu.holders:
                holder.user_by = "a rule"
    merged = msgspec.structs.replace(merged, hosts=[*merged.hosts, *sample.hosts])
    status = renamed(merged, ClusterStatus, word, numbers)
    known = {}
    for name, detail in details.items():
        for gpu in detail.gpus:
            gpu.hints.append("a hint")
            gpu.health.append(
                HealthEvent(
                    kind="xid",
                    level="fault",
                    text="a trouble",
                    advice="an advice",
                    first_at=1.0,
                    last_at=2.0,
                    count=1,
                    source="a source",
                )
            )
            for process in gpu.processes or []:
                process.job = process.container = process.note = "somewhere"
                process.started_from = process.user_by = "somehow"
        known[f"{word}{numbers[name]}"] = renamed(detail, HostSnapshot, word, numbers)
    users = [user.user for user in status.users if user.user is not None]
    app = site(status, known.get, title=word)
    return app, [host.name for host in status.hosts], users


def _pages(word: str) -> list[Page]:
    app, hosts, users = _cluster(word)
    targets = ["/", *(f"/host/{segment(name)}" for name in hosts)]
    targets += [f"/user/{segment(name)}" for name in users]
    pages = []
    for target in targets:
        reply = get(app, target)
        assert reply.code == 200, target
        pages.append(Page(reply.text))
    reply = get(app, f"/{segment(word)}")
    assert reply.code == 404
    return [*pages, Page(reply.text)]


@pytest.fixture(scope="module")
def tame():
    return [page.shape for page in _pages("tame")]


@pytest.mark.parametrize("word", HOSTILE)
def test_no_text_of_others_becomes_markup(word, tame):
    pages = _pages(word)
    assert [page.shape for page in pages] == tame
    for page in pages:
        for tag, attributes in page.tags:
            assert tag != "script" or attributes["src"].partition("?")[0].endswith(
                "static/gpumon.js"
            )
            assert not any(name.startswith("on") or name == "style" for name in attributes)
            for name in ("href", "src"):
                value = attributes.get(name)
                assert value is None or value.startswith(("./", "../", "#"))


def test_hostile_text_is_shown_as_text():
    page = _pages(HOSTILE[0])[0]
    assert HOSTILE[0] in page.words


@pytest.mark.parametrize("word", HOSTILE)
def test_the_plain_text_stays_printable_and_narrow(word):
    app, _, _ = _cluster(word)
    for line in get(app, "/status.txt").text.splitlines():
        assert line.isascii()
        assert line.isprintable()
        assert len(line) <= 100


def test_nothing_unprintable_reaches_a_page():
    for page in _pages(HOSTILE[5]):
        for sign in ("\x1b", "\x07", "\x00", "\u202e", "\u2066"):
            assert sign not in "".join(page.pieces)


@pytest.mark.parametrize("word", HOSTILE)
def test_json_gives_the_text_back_unchanged(word):
    app, hosts, _ = _cluster(word)
    assert json.loads(get(app, "/status.json").body)["hosts"][0]["name"] == hosts[0]
    assert json.loads(get(app, f"/host/{segment(hosts[0])}.json").body)["host"]["name"] == hosts[0]


def test_the_names_that_a_mistyped_host_is_near_to_are_escaped():
    word = HOSTILE[0]
    app, _, _ = _cluster(word)
    reply = get(app, f"/host/{segment(word)}")
    assert reply.code == 404
    page = Page(reply.text)
    assert "Did you mean" in page.words
    assert word in page.words
    assert not {"img", "iframe"} & {tag for tag, _ in page.tags}
    plain = get(app, f"/host/{segment(word)}", accept="*/*")
    assert plain.headers["Content-Type"] == "text/plain; charset=utf-8"
