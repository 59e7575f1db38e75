"""An owner by a rule is marked, and the mark explained; one by the kernel's word is neither."""

from __future__ import annotations

from web_client import get, page, site
from web_cluster import cluster, gpu, holder, host

from gpumon.model import Gpu, HostSnapshot, Process
from gpumon.web.front import BY_RULE
from gpumon.web.text import WIDTH, render

RULE = "rule: home mount"


def _cluster(user_by):
    bob = [holder("bob", user_by=user_by)]
    gpus = [gpu(0, "busy"), gpu(1, "busy", holders=bob), gpu(2, "idle", holders=bob)]
    return cluster([host("gpu-1", gpus)])


def _detail(user_by):
    ruled = Process(pid=77, user="bob", user_by=user_by, started_from="tmux", note="a remark")
    plain = Process(pid=78, user="alice")
    return HostSnapshot(gpus=[Gpu(index=0, processes=[ruled, plain])])


def test_the_page_marks_an_owner_by_rule_wherever_it_names_one():
    front = page(site(_cluster(RULE)), "/")
    assert "bob* 2" in front.row("gpu-1")[4]
    assert "alice 1" in front.row("gpu-1")[4]
    assert front.row("1")[-1].startswith("bob* ")
    assert front.row("bob*")[1] == "2"
    assert front.row("idle")[2].strip() == "bob*"
    assert BY_RULE in front.words


def test_the_page_of_the_host_says_which_rule_it_was():
    app = site(_cluster(RULE), lambda _: _detail(RULE))
    shown = page(app, "/host/gpu-1")
    ruled, plain = (next(row for row in shown.rows if pid in row) for pid in ("77", "78"))
    assert ruled[1].strip() == "bob*"
    assert ruled[-1] == "started from tmux, owner by rule: home mount, a remark"
    assert (plain[1].strip(), plain[-1]) == ("alice", "")
    assert shown.row("1")[-1].startswith("bob* ")
    assert BY_RULE in shown.words


def test_the_page_of_the_user_says_it_too():
    shown = page(site(_cluster(RULE)), "/user/bob")
    assert "All hosts bob* bob holds" in shown.words
    assert "python, owner by rule: home mount" in shown.words
    assert BY_RULE in shown.words
    assert "*" not in page(site(_cluster(RULE)), "/user/alice").words


def test_the_text_marks_and_explains_it_within_the_screen():
    text = render(_cluster(RULE))
    assert "bob* 2, alice 1" in text
    assert "\nbob* " in text
    assert "gpu-1:2  bob*" in text
    assert BY_RULE in text.splitlines()
    assert len(BY_RULE) <= WIDTH


def test_a_long_name_keeps_its_mark_in_the_text():
    long = [holder("x" * 40, user_by=RULE)]
    text = render(cluster([host("gpu-1", [gpu(0, "busy", holders=long)])]))
    assert f"\n{'x' * 18}~* " in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_without_an_owner_by_rule_there_is_neither_mark_nor_words():
    app = site(_cluster(None), lambda _: _detail(None))
    for target in ("/", "/host/gpu-1", "/user/bob"):
        assert "*" not in page(app, target).words
    assert "*" not in get(app, "/status.txt").text


def test_an_unknown_owner_is_never_an_owner_by_rule():
    nobody = [holder(None, user_by=RULE)]
    status = cluster([host("gpu-1", [gpu(0, "busy", holders=nobody)])])
    assert "*" not in page(site(status), "/").words
    assert "*" not in render(status)
