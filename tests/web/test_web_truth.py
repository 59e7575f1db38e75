"""The page never guesses: unknown is not zero, old is not now, silent is not free."""

from __future__ import annotations

import json

import pytest
from web_client import get, page, site
from web_cluster import HOUR, NOW, cluster, every_state, gpu, holder, host, instance

from gpumon.cluster.record import Moment, Record
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.view import build
from gpumon.config import Config, HostEntry, Limits
from gpumon.model import Gpu, HostSnapshot, MigInstance, Process
from gpumon.simulate import SimulatedHost
from gpumon.units import clock

NOTHING_KNOWN = {
    "name": None,
    "model": "unknown GPU",
    "reason": "its processes could not be read",
    "since": None,
    "utilization_percent": None,
    "memory_used_mib": None,
    "memory_total_mib": None,
    "temperature_celsius": None,
    "power_draw_watts": None,
    "enforced_power_limit_watts": None,
    "holders": [],
}


def test_a_gpu_of_which_nothing_is_known_shows_no_number():
    silent = host(
        "gpu-1",
        [gpu(0, "unknown", **NOTHING_KNOWN)],
        cpu_percent=None,
        memory_total_mib=None,
        memory_available_mib=None,
        agent_version=None,
        driver_version=None,
        cuda_version=None,
    )
    app = site(cluster([silent]))
    front = page(app, "/")
    why = "its processes could not be read"
    assert front.row("0") == ["0", "unknown -", "-", "-", "-", why]
    row = front.row("gpu-1")
    assert row[-3:-1] == ["-", "-"]
    assert page(app, "/host/gpu-1").row("0") == [
        "0", "unknown GPU", "? unknown -", "-", "-", "-", "-", "-", why,
    ]  # fmt: skip


def test_a_measured_zero_is_shown_as_zero():
    idle = host(
        "gpu-1",
        [
            gpu(
                0,
                "busy",
                utilization_percent=0,
                memory_used_mib=0,
                temperature_celsius=0,
                power_draw_watts=0.0,
                holders=[holder("alice", hours=0, gpu_memory_used_mib=0)],
                since=NOW,
            )
        ],
        cpu_percent=0.0,
        memory_available_mib=1_000_000,
        age_seconds=0.0,
    )
    app = site(cluster([idle]))
    front = page(app, "/")
    assert front.row("0") == ["0", "busy 0s", "0%", "0M of 80.0G", "0 °C", "alice 0M at most 0s"]
    assert front.row("gpu-1")[-3:] == ["0%", "0%", "0s"]
    assert '<i class="c busy" data-gpu="0">0</i>' in get(app, "/").text
    assert "gpu-1 H100 80G   0" in get(app, "/status.txt").text
    assert "0 of 700 W" in page(app, "/host/gpu-1").words


def test_use_that_the_driver_does_not_tell_is_no_zero_in_the_cell():
    app = site(cluster([host("gpu-1", [gpu(0, "busy", utilization_percent=None)])]))
    assert '<i class="c busy" data-gpu="0">#</i>' in get(app, "/").text
    assert "gpu-1 H100 80G   #" in get(app, "/status.txt").text


def test_unknown_process_fields_are_dashes():
    detail = HostSnapshot(
        hostname="gpu-1", gpus=[Gpu(index=0, processes=[Process(pid=77)]), Gpu(index=1)]
    )
    app = site(cluster([host("gpu-1", [gpu(0, "busy"), gpu(1)])]), lambda _: detail)
    shown = page(app, "/host/gpu-1")
    row = next(row for row in shown.rows if "77" in row)
    assert row == ["0", "unknown owner", "-", "-", "77", "-", "-", "-", "-", "-", "-", ""]
    assert "The processes of GPU 1 are not known: reason not known." in shown.words
    assert shown.row("Utilization") == ["Utilization", "-", "-"]
    assert shown.row("ECC uncorrected, since reset")[1:] == ["-", "-"]


def test_reasons_of_unknown_readings_are_listed():
    why = {"fan_speed_percent": "not supported", "processes": "no permission"}
    detail = HostSnapshot(
        gpus=[Gpu(index=0, unknown=why), Gpu(index=1, unknown=why), Gpu(index=2, error="lost")]
    )
    app = site(cluster([host("gpu-1", [gpu(0), gpu(1), gpu(2)])]), lambda _: detail)
    words = page(app, "/host/gpu-1").words
    assert "Fan speed, GPU 0,1: not supported" in words
    assert "Processes, GPU 0,1: no permission" in words
    assert "The whole GPU, GPU 2: lost" in words
    assert "The processes of GPU 0 are not known: no permission." in words


def test_an_instance_whose_processes_are_hidden_says_so():
    detail = HostSnapshot(gpus=[Gpu(index=0, processes=[], mig=[MigInstance(index=3)])])
    app = site(cluster([host("gpu-1", [gpu(0)])]), lambda _: detail)
    assert "The processes of GPU 0 MIG 3 are not known" in page(app, "/host/gpu-1").words


def _training_host(seconds_later: float):
    entry = HostEntry(name="gpu-01", source="simulated", address="simulated")
    machine, config = SimulatedHost("gpu-01", 0), Config(hosts=[entry])
    record = Record(entry=entry)
    for step in range(3):
        at = NOW - 10.0 + 5 * step
        record = record.answered_with(
            Reading.of(machine.snapshot(at)),
            asked=at,
            now=Moment(monotonic=at, wall=at),
            limits=Limits(),
            poll_interval=5.0,
        )
    later = NOW + seconds_later
    return build([record], config=config, now=Moment(monotonic=later, wall=later), revision="r-1")


@pytest.mark.parametrize(("later", "state"), [(60.0, "stale"), (900.0, "down")])
def test_gpus_of_a_silent_host_are_never_counted_free(later, state):
    fresh, silent = _training_host(1.0), _training_host(later)
    assert fresh.totals.gpus.free > 0
    app = site(silent)
    front = page(app, "/")
    assert front.row("H100 80G")[1:] == ["0", "8", "(8 unknown)"]
    assert "No GPU is known to be free right now." in front.words
    assert "(8 unknown)" in get(app, "/status.txt").text
    row = front.row("gpu-01")
    assert row[3].split()[0] == "-"
    assert row[4].startswith("last: ")
    assert row[-1].endswith(state)
    assert row[-3:-1] == ["-", "-"], "CPU and RAM of long ago are not shown as those of now"
    assert 'class="c free' not in get(app, "/").text.partition('id="hosts"')[2]
    assert "0 free" in get(app, "/status.txt").text.splitlines()[1]
    assert "All values below are the last ones known" in page(app, "/host/gpu-01").words


def test_old_values_are_dated_by_their_reading_not_by_the_last_answer():
    frozen = {"state": "stale", "age_seconds": 2 * HOUR, "answered_at": NOW - 1.0}
    app = site(cluster([host("gpu-1", [gpu(0, "unknown")], **frozen)]))
    when = clock(NOW - 2 * HOUR, NOW)
    assert f"the last ones known, from {when}." in page(app, "/host/gpu-1").words
    assert "<caption>Last known values, 2h00 old</caption>" in get(app, "/").text
    assert "<caption>" not in get(site(every_state()), "/").text.partition("gpu-4")[0]
    assert when != clock(NOW - 1.0, NOW)


def test_a_state_that_may_have_begun_earlier_says_so():
    since = {"since": NOW - 2 * HOUR, "since_at_least": True}
    app = site(cluster([host("gpu-1", [gpu(0, "idle", **since), gpu(1, "free", **since)])]))
    front = page(app, "/")
    assert front.row("0")[1] == "idle at least 2h00"
    assert front.row("1")[1] == "free at least 2h00"
    assert front.row("idle")[4] == "at least 2h00"
    assert ">=2h00" in get(app, "/status.txt").text


def test_hosts_that_never_answered_are_said_not_to_be_counted():
    words = page(site(every_state()), "/").words
    assert "1 not heard of yet" in words
    assert "How many GPUs a host has that never answered is not known: none are counted." in words


def test_no_hosts_shows_the_lines_to_add():
    app = site(cluster([]))
    words = page(app, "/").words
    assert "No hosts are configured" in words
    assert "hosts: - gpu-host-1" in words
    assert "hosts:\n  - gpu-host-1\n" in get(app, "/status.txt").text


def test_a_hosts_last_errors_do_not_hide_why_it_is_silent():
    quiet = {"state": "down", "reason": "refused: nobody", "reason_kind": "refused"}
    old = host("gpu-1", [], gpu_count=None, errors=["The driver does not answer."], **quiet)
    assert page(site(cluster([old])), "/").row("gpu-1")[1] == "refused: nobody"


def test_an_opened_list_of_gpus_leaves_room_for_what_is_said_beside_it():
    late = {"state": "stale", "reason": "timed out: no answer", "reason_kind": "timed out"}
    both = [holder("alice"), holder("bob")]
    hosts = [
        host("gpu-1", [gpu(0)]),
        host("gpu-2", [gpu(0)], notes=["its clock is 3m ahead of this server's"]),
        host("gpu-3", [gpu(0, "unknown", holders=both)], **late),
    ]
    html = get(site(cluster(hosts)), "/").text
    assert [part[:2] for part in html.split('<details class="')[1:]] == ["l1", "l2", "l3"]


def test_a_clock_that_is_off_is_a_note_and_no_error():
    note = "its clock is 3m ahead of this server's"
    app = site(cluster([host("gpu-1", [gpu(0)], notes=[note])]))
    front = page(app, "/")
    assert front.row("gpu-1")[-1].split() == ["4s", "note"]
    assert front.row("note")[3] == note
    assert "error" not in front.words
    assert '<p class="remark">its clock is' in get(app, "/host/gpu-1").text
    assert "4s note" in get(app, "/status.txt").text


def test_gpus_that_no_host_has_told_of_are_not_zero():
    waiting = {"state": "never", "gpu_count": None, "age_seconds": None, "answered_at": None}
    mute = host("gpu-2", [], gpu_count=None, errors=["The driver does not answer."])
    for hosts in ([host("gpu-1", [], reason="not asked yet", **waiting)], [mute]):
        app = site(cluster(hosts))
        html = get(app, "/").text
        assert "<title>- free - GPUs</title>" in html
        assert "<b>-</b> free" in html
        assert "0 free" not in html
        assert "of - GPUs on 1 host" in html
        assert "GPUs  - free  - busy" in get(app, "/status.txt").text
    assert "No host has answered yet." not in html
    assert "No GPU is known: the hosts say why." in html


def test_hosts_whose_gpus_are_not_known_are_left_out_of_the_count():
    mute = host("gpu-2", [], gpu_count=None, errors=["The driver does not answer."])
    app = site(cluster([host("gpu-1", [gpu(0)]), mute]))
    assert "of 1 GPU on 1 of 2 hosts" in page(app, "/").words


def test_a_host_that_was_not_asked_yet_is_not_called_broken():
    waiting = {"state": "never", "gpu_count": None, "age_seconds": None, "answered_at": None}
    app = site(cluster([host("gpu-1", [], reason="not asked yet", **waiting)]))
    assert "Nothing is known to be wasted or broken." in page(app, "/").words


def test_processes_that_nobody_could_ask_for_are_not_none():
    detail = HostSnapshot(hostname="gpu-1", errors=["The driver does not answer."])
    mute = host("gpu-1", [], gpu_count=None, errors=["The driver does not answer."])
    words = page(site(cluster([mute]), lambda _: detail), "/host/gpu-1").words
    assert "No process on any GPU" not in words
    assert "The processes of this host are not known: its GPUs could not be read." in words
    empty = HostSnapshot(hostname="gpu-1", gpu_count=0)
    app = site(cluster([host("gpu-1", [], gpu_count=0)]), lambda _: empty)
    assert "No process on any GPU." in page(app, "/host/gpu-1").words


def test_a_ghost_has_an_unknown_number_of_processes():
    nobody = {"holders": [], "reason": "62464 MiB in use, no process visible"}
    app = site(cluster([host("gpu-1", [gpu(0, "busy", **nobody)])]))
    assert page(app, "/").row("unknown owner")[4] == "-"


def test_hosts_without_an_answer_are_named():
    waiting = {"state": "never", "gpu_count": None, "age_seconds": None, "answered_at": None}
    app = site(cluster([host("gpu-1", [], reason="not asked yet", **waiting)]))
    front = page(app, "/")
    assert "No host has answered yet." in front.words
    assert front.row("gpu-1")[1] == "not asked yet"
    assert front.row("gpu-1")[-1].split() == ["-", "never"]
    assert "Nobody holds a GPU, as far as the hosts answer." in front.words


def test_nothing_free_says_so_and_whom_to_ask():
    app = site(
        cluster(
            [
                host("gpu-1", [gpu(0, "busy"), gpu(1, "idle", since=NOW - HOUR)]),
                host("gpu-2", [gpu(0, "idle", since=NOW - 9 * HOUR, holders=[holder("bob")])]),
            ]
        )
    )
    words = page(app, "/").words
    assert "No GPU is free right now." in words
    assert "unused the longest: gpu-2 GPU 0 bob 9h00 gpu-1 GPU 1 alice 1h00" in words
    assert "No GPU is free right now." in get(app, "/status.txt").text


def test_a_free_mig_instance_is_something_free():
    parts = [instance(0, "busy"), instance(1)]
    whole = gpu(0, "busy", mig_mode=True, mig=parts, utilization_percent=None)
    app = site(cluster([host("gpu-1", [whole])]))
    front = page(app, "/")
    assert "No GPU is free" not in front.words
    assert "A GPU in MIG mode counts once in the totals." in front.words
    assert "A GPU in MIG mode counts once in the totals." in get(app, "/status.txt").text
    assert front.row("gpu-1")[3].split() == ["0", "free", "1", "MIG"]
    assert front.row("MIG 1")[1] == "free 1h00"
    assert "1/2" in get(app, "/status.txt").text


def test_a_host_without_gpus_is_told_from_one_that_does_not_say():
    none = host("gpu-1", [], gpu_count=0)
    mute = host("gpu-2", [], gpu_count=None, errors=["The driver does not answer. Reboot."])
    front = page(site(cluster([none, mute])), "/")
    assert front.row("gpu-1")[1] == "no GPU in this host"
    assert front.row("gpu-2")[1] == "The driver does not answer. Reboot."


def test_a_host_is_named_when_nobody_has_its_reading():
    words = page(site(every_state()), "/host/gpu-5").words
    assert "never, no reading yet" in words
    assert "gpu-5: no such name" in words
    assert "The processes of this host are not known" in words


def test_the_row_of_cells_has_a_sentence_for_those_who_do_not_see_it():
    html = get(site(every_state()), "/").text
    assert '<span class="strip" aria-hidden="true">' in html
    assert (
        '<span class="sr">3 busy, 2 free: 2 and 5, 1 idle: 3, 1 fault: 4, 1 unknown: 7</span>'
        in html
    )
    assert "1 drained: 1, GPU 0 has 2 of 3 MIG instances free</span>" in html


def test_unified_memory_is_told_from_unknown_memory():
    shared = gpu(0, memory_used_mib=None, memory_total_mib=None, unified_memory=True)
    front = page(site(cluster([host("spark", [shared])])), "/")
    assert front.row("0")[3] == "shared with host"


@pytest.mark.parametrize("state", ["unknown", "fault", "drained"])
def test_of_a_gpu_that_is_out_no_instances_are_counted_as_not_free(state):
    split = gpu(0, state, mig_mode=True, mig=[instance(0, state), instance(1, state)])
    html = get(site(cluster([host("gpu-1", [split])])), "/").text
    assert f'<span class="sr">1 {state}: 0</span>' in html


def test_who_was_on_a_host_that_went_silent_is_not_held_to_have_stayed():
    """The process table counts to the last reading; what stands beside it must not go on."""
    last = gpu(0, "unknown", holders=[holder("chen", hours=3.0)])
    silent = host("gpu-1", [last], state="stale", age_seconds=HOUR, reason="no answer")
    app = site(cluster([silent]))
    assert "last: chen 1 at most 2h00" in page(app, "/").words
    assert "68.4G at most 2h00" in page(app, "/host/gpu-1").words
    assert "<=2h00" in get(app, "/host/gpu-1", accept="*/*").text


def test_a_number_of_gpus_that_nobody_told_is_null_in_json_and_no_zero():
    mute = host("gpu-1", [], gpu_count=None, errors=["No driver answers."])
    none = host("gpu-2", [], gpu_count=0)
    told = json.loads(get(site(cluster([mute, none])), "/status.json").body)
    assert told["totals"]["gpus"] is None
    told = json.loads(get(site(cluster([none])), "/status.json").body)
    assert told["totals"]["gpus"]["free"] == 0
