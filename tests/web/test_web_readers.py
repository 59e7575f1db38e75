"""Three tiers of readers: what one may see is never shown, kept or confirmed for another."""

from __future__ import annotations

import json
import re

import pytest
from msgspec import structs
from web_client import get, page, site
from web_cluster import cluster, every_state, gpu, holder, host, instance, simulated

from gpumon.cluster.visible import SOMEBODY, Sight, pseudonym, sight_of, visible, visible_detail
from gpumon.config import Config, WebConfig
from gpumon.model import Gpu, HostSnapshot, MigInstance, Process
from gpumon.web.me import own_style

LOGIN = {"user_header": "X-Forwarded-User", "trusted_proxies": ["127.0.0.1", "10.1.0.0/16"]}
FACES = ["/", "/?view=map", "/status.json", "/status.txt", "/host/gpu-1", "/host/gpu-1.json"]
FACES += ["/?q=%40bob", "/status.json?q=bob", "/user/bob", "/user/bob.json", "/host/gpu-2.json"]
PEOPLE = ["alice", "bob", "erin", "mei"]


def _detail(name):
    secret = Process(
        pid=7, user="bob", uid=1007, program="python", command="python --key hunter2",
        container="docker 3f4e (bob-train)", job="slurm 1 of bob", started_from="session of bob",
    )  # fmt: skip
    part = MigInstance(index=0, processes=[structs.replace(secret, pid=8, user="erin")])
    return HostSnapshot(gpus=[Gpu(index=0, processes=[secret], mig=[part])], gpu_count=1)


def _site(**web):
    return site(every_state(), _detail, **{**LOGIN, **web})


@pytest.mark.parametrize("users", ["pseudonyms", "hidden"])
@pytest.mark.parametrize("target", FACES)
@pytest.mark.parametrize("accept", ["text/html", "*/*", "application/json"])
def test_no_face_tells_an_anonymous_reader_a_hidden_name(users, target, accept):
    app = _site(anonymous_users=users)
    body = get(app, target, accept=accept).text
    # What the reader typed comes back; that says nothing about who is there.
    body = (
        body.replace("free 4x h100 @alice gpu-0*", "")
        .replace("@bob", "")
        .replace("/bob", "")
        .replace('value="bob"', "")
    )
    if "bob" in target:
        body = re.sub(r"(?<!\w)bob(?!\w)", "", body)
    for name in PEOPLE:
        assert not re.search(rf"\b{name}\b", body), name
    assert "hunter2" not in body
    assert "1007" not in body


@pytest.mark.parametrize("users", ["pseudonyms", "hidden"])
def test_a_hidden_name_is_as_unknown_as_any_other(users):
    app = _site(anonymous_users=users)
    for target in ("/user/{}", "/user/{}.json", "/?q=%40{}", "/status.json?q={}"):
        for accept in ("text/html", "*/*"):
            real, made_up = (
                get(app, target.format(name), accept=accept).text.replace(name, "NAME")
                for name in ("bob", "zoe")
            )
            assert real == made_up, target


def test_the_page_says_that_names_are_hidden_instead_of_nothing_held():
    app = _site(anonymous_users="hidden")
    said = "User names are hidden from readers who are not logged in."
    assert said in page(app, "/user/bob").words
    assert "holds no GPU" not in page(app, "/user/bob").words
    assert said in get(app, "/user/bob", accept="*/*").text
    assert said in page(app, "/?q=%40bob").words
    assert said in json.loads(get(app, "/status.json?q=%40bob").body)["query_remarks"]


def test_a_reader_whom_the_proxy_names_sees_names():
    app = _site(anonymous_users="hidden")
    for target in ("/", "/status.txt", "/status.json", "/host/gpu-1", "/user/bob"):
        assert "bob" in get(app, target, x_forwarded_user="alice").text


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [("127.0.0.1", True), ("10.1.2.3", True), ("10.2.0.1", False), ("::1", False), ("", False)],
)
def test_only_a_trusted_proxy_may_say_who_reads(peer, trusted):
    body = get(_site(anonymous_users="hidden"), "/", peer=peer, x_forwarded_user="alice").text
    assert (">alice<" in body) is trusted


@pytest.mark.parametrize("value", ["alice, bob", "alice,bob", " ", "a\x01b", "x" * 65, "\xff\xfe"])
def test_a_value_that_is_no_single_name_is_nobody(value):
    app = _site(anonymous_users="hidden", admins=["alice", "bob"], command_lines="admins")
    body = get(app, "/host/gpu-1", x_forwarded_user=value).text
    assert ">bob<" not in body
    assert "hunter2" not in body


def test_without_a_configured_header_nobody_is_named():
    app = site(every_state(), _detail, anonymous_users="hidden", admins=["alice"])
    assert ">bob<" not in get(app, "/", x_forwarded_user="alice").text


@pytest.mark.parametrize(
    ("told", "reader", "shown"),
    [
        ("nobody", "root", False),
        ("admins", "root", True),
        ("admins", "alice", False),
        ("admins", "", False),
        ("named", "root", True),
        ("named", "alice", True),
        ("named", "", False),
    ],
)
def test_command_lines_are_for_those_alone_whom_the_configuration_names(told, reader, shown):
    app = _site(command_lines=told, admins=["root"])
    for target in ("/host/gpu-1", "/host/gpu-1.json"):
        for accept in ("text/html", "*/*"):
            body = get(app, target, accept=accept, x_forwarded_user=reader).text
            assert ("hunter2" in body) is shown


def test_the_default_shows_names_to_all_and_command_lines_to_none():
    assert [sight_of(tier, Config()) for tier in ("anonymous", "named", "admin")] == [Sight()] * 3


def test_no_tier_is_told_that_it_has_what_another_got():
    app = _site(anonymous_users="pseudonyms", command_lines="admins", admins=["root"])
    for target in FACES:
        tags = {}
        for reader in ("", "alice", "root"):
            reply = get(app, target, x_forwarded_user=reader)
            tags[reader] = reply.headers["Etag"]
            assert "X-Forwarded-User" in reply.headers["Vary"].split(", ")
            assert reply.headers["Cache-Control"] == "private, no-cache"
        assert len(set(tags.values())) == 3
        for reader in tags:
            for other, tag in tags.items():
                code = get(app, target, x_forwarded_user=reader, if_none_match=tag).code
                assert code == (304 if reader == other else 200)


def test_readers_of_one_tier_share_one_rendering():
    made = []
    app = site(every_state(), lambda name: made.append(name), **LOGIN)
    for reader in ("alice", "bob", "mei"):
        get(app, "/host/gpu-1", x_forwarded_user=reader)
    assert made == ["gpu-1"]


def test_without_a_login_answers_depend_on_nobody():
    reply = get(site(every_state()), "/")
    assert reply.headers["Vary"] == "Accept, Accept-Encoding"
    assert reply.headers["Cache-Control"] == "no-cache"


def test_own_rows_are_marked_by_a_style_sheet_of_ones_own():
    app = _site()
    html = get(app, "/", x_forwarded_user="bob").text
    assert '<link rel="stylesheet" href="./me.css">' in html
    assert '<a href="./me">My GPUs</a>' in html
    assert "me.css" not in get(app, "/").text
    mine = get(app, "/me.css", x_forwarded_user="bob")
    assert 'a[href$="/user/bob"]' in mine.text
    assert mine.headers["Cache-Control"] == "no-store"
    assert get(app, "/me.css").text == ""
    sent = get(app, "/me", x_forwarded_user="a/b")
    assert (sent.code, sent.headers["Location"]) == (302, "user/a%252Fb")
    assert get(app, "/me").code == 404


@pytest.mark.parametrize("name", ['"]{}*{display:none}', "</style>", "a\\b", "ü", "..", "a.json"])
def test_no_name_breaks_out_of_its_style_sheet(name):
    style = own_style(name)
    text = re.search(r'a\[href\$="(.*?)"\]', style)[1]
    assert re.fullmatch(r"/user/(?:[A-Za-z0-9]|\\[0-9a-f]+ )+", text)
    assert style.count('"') == own_style("bob").count('"')


def test_pseudonyms_hold_and_tell_users_apart():
    status, _, _ = simulated(20)
    sight = Sight(names="pseudonyms")
    masked = visible(status, sight, b"k")
    assert masked == visible(status, sight, b"k")
    assert masked != visible(status, sight, b"other")
    assert sorted(one.gpus for one in masked.users) == sorted(one.gpus for one in status.users)
    assert masked.totals == status.totals
    assert masked.models == status.models
    assert re.fullmatch("user-[a-z2-7]{6}", pseudonym("alice", b"k"))
    odd = pseudonym("\ud800", b"k")
    assert odd.startswith("user-")


def test_hidden_users_are_one_and_an_unknown_owner_stays_unknown():
    parts = [instance(0, "busy")]
    status = cluster(
        [
            host("a", [gpu(0, "busy"), gpu(1, "busy", holders=[holder(None)])]),
            host("b", [gpu(0, "busy", holders=[holder("bob")])]),
            host("c", [gpu(0, "busy", mig_mode=True, mig=parts, holders=parts[0].holders)]),
        ]
    )
    users = {one.user: one.gpus for one in visible(status, Sight(names="hidden"), b"").users}
    assert users == {SOMEBODY: 3, None: 1}


def test_what_a_reading_tells_of_people_goes_with_their_names():
    for names in ("pseudonyms", "hidden"):
        detail = visible_detail(_detail("x"), Sight(names=names, commands=False), b"k")
        for process in (detail.gpus[0].processes[0], detail.gpus[0].mig[0].processes[0]):
            assert process.user not in ("bob", "erin")
            told = (process.uid, process.command, process.container, process.job)
            assert (*told, process.started_from) == (None,) * 5
            assert process.program == "python"
    assert visible_detail(_detail("x"), Sight(commands=True), b"") == _detail("x")


def test_the_reading_itself_is_left_as_it_is():
    detail = _detail("x")
    visible_detail(detail, Sight(names="hidden"), b"k")
    assert detail == _detail("x")


def test_names_are_shown_where_the_tier_may_see_them_without_a_copy():
    status = every_state()
    assert visible(status, Sight(), b"") is status


def test_a_web_config_of_before_has_the_same_readers():
    assert WebConfig().user_header is None
