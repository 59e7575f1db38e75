from __future__ import annotations

from urllib.parse import unquote, urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_client import Page, get, site
from web_cluster import HOUR, NOW, cluster, gpu, holder, host, simulated

from gpumon.web.links import name_of, root_of, segment

ODD_NAMES = [
    "gpu 1", "a/b", "/", "..", ".", "50%", "%2F", "a?b=c", "a#b", "ü-1", "a.json", "a",
    "http://evil.example/", "//evil.example", "javascript:alert(1)", "x&y=z", '"><b>', "a;b", "a+b",
    "a\\b", "~", "%00", "名前",
]  # fmt: skip


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_name_survives_its_address(name):
    inside = segment(name)
    assert "/" not in inside
    assert inside.isascii()
    assert inside not in (".", "..")
    assert not inside.endswith(".json")
    assert name_of(unquote(inside)) == name


def test_a_name_that_cannot_be_encoded_is_no_failure():
    assert segment("\ud800") == "%3F"


@pytest.mark.parametrize(
    ("path", "root"),
    [("/", "./"), ("", "./"), ("/index", "./"), ("/gpus/", "../"), ("/host/a", "../")],
)
def test_the_root_is_as_many_steps_up_as_the_path_is_deep(path, root):
    assert root_of(path) == root
    assert urljoin(f"http://x/pre{path or '/'}", root) == "http://x/pre/"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_hosts_and_users_of_any_name_have_their_pages(name):
    hosts = [
        host(one, [gpu(0, "busy", holders=[holder(one)])])
        for one in dict.fromkeys([name, "a", "a.json"])
    ]
    app = site(cluster(hosts))
    for kind in ("host", "user"):
        page = get(app, f"/{kind}/{segment(name)}")
        assert page.code == 200
        assert f"<h1>{_escaped(name)}</h1>" in page.text
        twin = get(app, f"/{kind}/{segment(name)}.json")
        assert twin.headers["Content-Type"] == "application/json"
        assert f'"{kind if kind == "user" else "name"}":{_json(name)}' in twin.text


def _escaped(name):
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        name = name.replace(sign, entity)
    return name


def _json(name):
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_a_percent_sign_typed_by_hand_is_taken_as_it_stands():
    app = site(cluster([host("50%", [gpu(0)])]))
    assert get(app, "/host/50%25").code == 200


def test_a_host_called_like_a_twin_does_not_hide_it():
    app = site(cluster([host("a", [gpu(0)]), host("a.json", [gpu(0), gpu(1)])]))
    assert get(app, "/host/a.json").headers["Content-Type"] == "application/json"
    assert "<h1>a.json</h1>" in get(app, f"/host/{segment('a.json')}").text


MOUNTS = {
    "at the root": ("", "", lambda path: path),
    "below /gpus/, prefix stripped": ("/gpus", "", lambda path: path.removeprefix("/gpus")),
    "below /gpus/, not stripped": ("/gpus", "/gpus", lambda path: path),
    "below a deep prefix, not stripped": ("/a/b", "/a/b", lambda path: path),
    "stripped though configured": ("/gpus", "/gpus", lambda path: path.removeprefix("/gpus")),
}


@pytest.mark.parametrize("mount", MOUNTS)
def test_every_link_of_every_page_leads_somewhere_inside(mount):
    outside, prefix, inside = MOUNTS[mount]
    status, details, _ = simulated(4)
    odd = [
        host(name, [gpu(0, "idle", holders=[holder(name)], since=NOW - HOUR)]) for name in ODD_NAMES
    ]
    app = site(cluster([*status.hosts, *odd]), details.get, prefix=prefix)
    starts = ["/", "/index", "/gpus", "/gpus/", "/host/gpu-99", "/no/such/place"]
    todo = [f"http://site{outside}{start}" for start in starts]
    seen = set()
    while todo:
        address = todo.pop()
        if address in seen:
            continue
        seen.add(address)
        parts = urlsplit(address)
        assert parts.netloc == "site", f"{address} leads away"
        assert parts.path.startswith(f"{outside}/"), f"{address} leaves the prefix"
        if parts.query.count("&") > 0:
            continue  # a filter, an order and a mode are each followed, their thousand mixtures not
        query = f"?{parts.query}" if parts.query else ""
        reply = get(app, inside(parts.path) + query)
        if parts.path.endswith(("/gpu-99", "/place")):
            assert reply.code == 404
        elif reply.code == 302:
            todo.append(urljoin(address, reply.headers["Location"]))
        else:
            assert reply.code == 200, address
        if reply.headers["Content-Type"].startswith("text/html"):
            todo += [urljoin(address, link).partition("#")[0] for link in Page(reply.text).links()]
    assert len(seen) > 2 * len(ODD_NAMES)
    assert any("/static/gpumon.css" in address for address in seen)


def test_the_redirect_of_the_bare_prefix_stays_inside():
    app = site(cluster([]), prefix="/a/b")
    location = get(app, "/a/b").headers["Location"]
    assert urljoin("https://site/a/b", location) == "https://site/a/b/"


def test_no_link_is_absolute():
    status, details, _ = simulated(3)
    app = site(status, details.get)
    for path in ("/", "/gpus/", "/host/gpu-01", "/user/bob", "/host/none"):
        for link in Page(get(app, path).text).links():
            assert link.startswith(("./", "../", "#")), link
