from __future__ import annotations

import pytest
from msgspec import structs
from web_client import get, page, site
from web_cluster import HOUR, NOW, cluster, every_state, gpu, holder, host, instance

from gpumon.cluster.visible import SOMEBODY
from gpumon.errors import CollectError, SourceError
from gpumon.web import advice
from gpumon.web.waste import longest_idle, summary, wasted


def rows(*hosts):
    return wasted(cluster(list(hosts)))


def test_the_worst_comes_first():
    kinds = [row.kind for row in wasted(every_state())]
    assert kinds == ["fault", "down", "error", "never", "unknown", "ghost", "idle", "note"]


def test_a_sound_cluster_wastes_nothing():
    sound = cluster([host("gpu-1", [gpu(0, "busy"), gpu(1), gpu(2, "drained")])])
    assert wasted(sound) == []
    assert "Nothing is known to be wasted or broken." in page(site(sound), "/").words


def test_idle_gpus_of_one_user_on_one_host_share_a_row():
    idle = [gpu(n, "idle", since=NOW - (n + 1) * HOUR, memory_used_mib=1024) for n in (0, 1, 4)]
    bob = gpu(2, "idle", holders=[holder("bob")])
    found = rows(host("gpu-1", [*idle, bob]))
    assert [(row.users, row.gpus) for row in found] == [(["alice"], [0, 1, 4]), (["bob"], [2])]
    assert found[0].since == NOW - 5 * HOUR
    assert found[0].what == "3.0G held, not used: 8.0 GPU-hours"
    assert found[0].advice == "Ask alice"


def test_the_most_wasteful_of_a_kind_comes_first():
    short = host("gpu-1", [gpu(0, "idle", since=NOW - HOUR)])
    long = host("gpu-2", [gpu(0, "idle", since=NOW - 30 * HOUR)])
    assert [row.host for row in rows(short, long)] == ["gpu-2", "gpu-1"]


def test_how_long_it_is_idle_is_not_made_up():
    (row,) = rows(host("gpu-1", [gpu(0, "idle", since=None, memory_used_mib=None)]))
    assert (row.since, row.what) == (None, "held, not used")
    assert longest_idle([row], 5) == []


def test_memory_without_a_process_is_a_ghost():
    nobody = {"holders": [], "memory_used_mib": 62_464}
    busy, idle = rows(
        host("gpu-1", [gpu(0, "busy", reason="62464 MiB in use, no process visible", **nobody)]),
        host("gpu-2", [gpu(3, "idle", reason="held, not used for 40 min", **nobody)]),
    )
    assert (busy.kind, busy.what) == ("ghost", "62464 MiB in use, no process visible")
    assert (idle.kind, idle.what) == ("ghost", "61.0G in use, no process visible")
    assert "zombie" in idle.advice


def test_a_ghost_in_a_mig_instance_is_named():
    parts = [instance(0), instance(2, "busy", holders=[])]
    (row,) = rows(host("gpu-1", [gpu(1, "busy", mig_mode=True, mig=parts, holders=[])]))
    assert (row.gpus, row.what) == (
        [1],
        "MIG instance 2: in use, no process visible".replace("in use", "8.8G in use"),
    )


def test_gpus_with_the_same_trouble_share_a_row():
    hidden = "its processes could not be read"
    (row,) = rows(host("gpu-1", [gpu(n, "unknown", reason=hidden) for n in range(8)]))
    assert (row.kind, row.gpus, row.what) == ("unknown", list(range(8)), hidden)


def test_a_silent_host_is_one_row_with_its_last_users():
    quiet = {"state": "down", "reason": "no answer", "reason_kind": "timed out"}
    last = gpu(0, "unknown", holders=[holder("mei")])
    (row,) = rows(host("gpu-1", [last, gpu(1, "unknown")], age_seconds=600.0, **quiet))
    assert (row.kind, row.gpus, row.users, row.what) == ("down", [], ["mei"], "no answer")
    assert row.since == NOW - 600.0
    assert "'gpumon agent' running" in row.advice


@pytest.mark.parametrize("kind", [*SourceError.KINDS, *CollectError.KINDS, "no sample", None])
def test_there_is_something_to_do_about_every_kind_of_silence(kind):
    own = advice.for_host(kind) != advice.AGENT_LOG
    assert own == (kind not in ("failed", "no sample", None)), "where nothing is known, the log is"


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("2 uncorrected memory errors since the last reset", "Reset"),
        ("slowed down by its hardware: hw slowdown", "cooling"),
        ("the driver lost this GPU", "power-cycle"),
    ],
)
def test_each_fault_has_its_own_advice(reason, word):
    (row,) = rows(host("gpu-1", [gpu(0, "fault", reason=reason)]))
    assert word in row.advice


def test_a_warning_of_a_gpu_that_works_is_listed_before_ghosts_and_after_what_is_broken():
    waits = "bad memory rows wait for a reset"
    one = host(
        "gpu-1",
        [
            gpu(0, "idle"),
            gpu(1, "busy", holders=[]),
            gpu(2, "busy", warnings=[waits]),
            gpu(3, warnings=[waits, "XID 63"]),
            gpu(4, "unknown", reason="its processes could not be read"),
        ],
    )
    found = rows(one)
    assert [row.kind for row in found] == ["unknown", "warning", "warning", "ghost", "idle"]
    assert [(row.gpus, row.users, row.what) for row in found[1:3]] == [
        ([2, 3], ["alice"], waits),
        ([3], [], "XID 63"),
    ]
    assert (found[1].since, found[1].advice) == (None, "")
    app = site(cluster([one]))
    assert page(app, "/").row("warning")[3] == waits
    assert f"warning  gpu-1:2,3  alice      -  {waits}" in get(app, "/status.txt").text


def test_an_old_warning_of_a_silent_host_is_not_one_of_now():
    silent = host("gpu-1", [gpu(0, "unknown", warnings=["old"])], state="down", reason="no answer")
    assert [row.kind for row in rows(silent)] == ["down"]


def test_an_error_of_a_host_whose_gpus_are_read_is_a_note():
    said = {"errors": ["The load could not be read."], "reason": "The load could not be read."}
    sound = host("gpu-1", [gpu(0)], **said)
    assert [(row.kind, row.what) for row in rows(sound)] == [
        ("note", "The load could not be read.")
    ]
    app = site(cluster([sound]))
    assert page(app, "/").row("gpu-1")[-1].split() == ["4s", "note"]
    assert "4s note" in get(app, "/status.txt").text
    html = get(app, "/host/gpu-1").text
    assert '<p class="remark">The load could' in html
    assert 'class="problem"' not in html
    assert 'class="w error"' not in get(app, "/").text


@pytest.mark.parametrize(
    "trouble",
    [{"reason_kind": "no sample"}, {"gpu_count": None}, {"gpu_count": 0}],
)
def test_an_error_of_a_host_whose_gpus_are_not_read_stays_an_error(trouble):
    said = {"errors": ["Something is wrong."], "reason": "Something is wrong."}
    one = host("gpu-1", [gpu(0)], **{**said, **trouble})
    assert [row.kind for row in rows(one)] == ["error"]
    app = site(cluster([one]))
    assert page(app, "/").row("gpu-1")[-1].split() == ["4s", "error"]
    assert '<p class="problem">Something' in get(app, "/host/gpu-1").text


def test_a_fault_of_one_machine_under_two_names_stands_there_once():
    one = host("gpu-1", [gpu(0, "fault", reason="lost"), gpu(1, "idle", since=NOW - HOUR)])
    two = structs.replace(one, name="gpu-2")
    found = rows(one, two)
    assert [(row.kind, row.host, row.gpus) for row in found] == [
        ("fault", "gpu-1", [0]),
        ("idle", "gpu-1", [1]),
    ]
    silent = structs.replace(one, state="stale", reason="refused: words", reason_kind="refused")
    kinds = [(row.kind, row.host) for row in rows(silent, two)]
    assert kinds == [("fault", "gpu-2"), ("idle", "gpu-2"), ("stale", "gpu-1")]


def test_of_several_faults_all_are_told_and_the_gravest_has_its_cure():
    reason = (
        "bad memory rows could not be replaced by spare ones; "
        "2 uncorrected memory errors since the last reset"
    )
    [row] = rows(host("gpu-1", [gpu(0, "fault", reason=reason)]))
    assert (row.what, row.advice) == (reason, "Drain the GPU and have it replaced")


def test_one_line_sums_up_what_is_wasted_or_broken():
    long = gpu(0, "idle", since=NOW - 30 * HOUR, since_at_least=True)
    found = rows(
        host("gpu-1", [long, gpu(1, "fault", reason="lost"), gpu(2, "fault", reason="hot")]),
        host("gpu-2", [gpu(0, "idle", since=NOW - 5 * HOUR)], notes=["its clock is off"]),
        host("gpu-3", [], state="down", reason="no answer"),
    )
    assert [(part.kind, part.what) for part in summary(found)] == [
        ("fault", "2 GPUs"),
        ("down", "1 host"),
        ("idle", "2 GPUs (at least 35 GPU-hours)"),
    ]
    exact = rows(host("gpu-1", [gpu(0, "idle", since=NOW - 5 * HOUR)]))
    assert summary(exact)[0].what == "1 GPU (5 GPU-hours)"
    unknown = rows(host("gpu-1", [gpu(0, "idle", since=None)]))
    assert summary(unknown)[0].what == "1 GPU"


def test_the_line_stands_above_everything_else_and_leads_to_the_list():
    app = site(every_state())
    shown = page(app, "/")
    line = "fault 1 GPU, down 1 host, error 1 host, never 1 host, unknown 1 GPU, ghost 1 GPU"
    assert f"Wasted or broken: {line}, idle 1 GPU (at least 2 GPU-hours)" in shown.words
    assert shown.words.index("Wasted or broken: fault") < shown.words.index("Free now")
    assert "#waste" in shown.links()
    sound = cluster([host("gpu-1", [gpu(0)])])
    assert "Wasted or broken:" not in page(site(sound), "/").words


@pytest.mark.parametrize("nobody", [SOMEBODY, None])
def test_idle_gpus_whose_users_cannot_be_told_apart_do_not_share_a_row(nobody):
    alike = [gpu(n, "idle", holders=[holder(nobody)]) for n in (0, 1)]
    found = rows(host("gpu-1", alike))
    assert [(row.gpus, row.users) for row in found] == [([0], [nobody]), ([1], [nobody])]


def test_nobody_is_told_to_ask_a_user_whose_name_is_hidden():
    hidden = gpu(0, "idle", holders=[holder(SOMEBODY)])
    (row,) = rows(host("gpu-1", [hidden]))
    assert row.advice == "Ask an admin whose it is: names are hidden from you"
    mixed = gpu(0, "idle", holders=[holder("alice"), holder(None)])
    (row,) = rows(host("gpu-1", [mixed]))
    assert row.advice == "Ask alice"


def test_the_page_and_the_text_say_that_a_name_is_hidden():
    app = site(every_state(), anonymous_users="hidden")
    assert page(app, "/").row("idle")[2] == "name hidden"
    assert "/user/" not in " ".join(page(app, "/").links())
    assert "name hidden" in get(app, "/status.txt").text
