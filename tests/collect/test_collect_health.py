"""The health of a GPU in a snapshot: events of the driver, kernel log, readings, and memory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from collect_helpers import until
from fake_nvml.scenario import gb10, h100, rtx
from health_log import Log

from gpumon.collect import nvml
from gpumon.states import fault_of
from gpumon.summary import summarize
from gpumon.units import clock

HOUR = 3600.0

_ENTRY = {"kind": "xid", "code": 79, "level": "fault", "text": "", "advice": "", "sources": {}}
NO_SOURCE = json.dumps({"entries": {h100(0)["uuid"]: [_ENTRY]}}).encode()


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "kmsg")


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state.json"


def later(host, seconds):
    """Take a sample after so many seconds on all clocks."""
    return host.sample(later=seconds, wall_step=seconds)


def events(gpu):
    return [(event.kind, event.code, event.count, event.ended_at is None) for event in gpu.health]


def fault(snapshot, index=0):
    return fault_of(summarize(snapshot).gpus[index])


# Events of the driver


def test_an_xid_of_the_driver_is_a_fault_with_its_sentence(host):
    host.start(h100(0), h100(1))
    assert host.sample().gpus[1].health == []
    host.scenario.event(1, "xid", 79)
    snapshot = host.sample()
    (event,) = snapshot.gpus[1].health
    assert (event.kind, event.code, event.level, event.count) == ("xid", 79, "fault", 1)
    assert event.text == "XID 79: the GPU has fallen off the bus"
    assert "power-cycle" in event.advice
    assert (event.source, event.ended_at) == ("driver", None)
    assert snapshot.time - 5 < event.first_at <= snapshot.time
    assert fault(snapshot, 1) == event.text
    assert (snapshot.gpus[0].health, fault(snapshot, 0)) == ([], None)
    assert events(host.sample().gpus[1]) == [("xid", 79, 1, True)]


def test_an_hour_later_it_is_over_and_still_told(host):
    host.start(h100(0))
    host.sample()
    host.scenario.event(0, "xid", 62)
    first = host.sample().gpus[0].health[0]
    assert fault(later(host, HOUR - 60)) is not None
    snapshot = later(host, 61)
    (event,) = snapshot.gpus[0].health
    assert fault(snapshot) is None
    assert (event.first_at, event.last_at) == (first.first_at, first.last_at)
    assert event.ended_at == pytest.approx(first.last_at + HOUR)
    assert later(host, 25 * HOUR).gpus[0].health == []


def test_an_error_of_a_program_is_told_and_no_fault(host):
    host.start(h100(0))
    host.sample()
    for _ in range(3):
        host.scenario.event(0, "xid", 31)
    snapshot = host.sample()
    (event,) = snapshot.gpus[0].health
    assert (event.level, event.count) == ("application", 3)
    assert event.ended_at == event.last_at
    assert fault(snapshot) is None
    assert summarize(snapshot).gpus[0].warnings == []


def test_a_contained_memory_error_is_a_warning(host):
    host.start(h100(0))
    host.sample()
    host.scenario.event(0, "xid", 94)
    snapshot = host.sample()
    assert fault(snapshot) is None
    assert summarize(snapshot).gpus[0].warnings == [
        "XID 94: a memory error ended one program and no other"
    ]


def test_a_storm_of_events_is_taken_out_in_bounded_parts(host):
    host.start(h100(0))
    host.sample()
    for _ in range(600):
        host.scenario.event(0, "xid", 31)
    counts = []
    for _ in range(3):
        before = host.calls()
        counts.append(host.gpu().health[0].count)
        assert (host.calls() - before)["nvmlEventSetWait_v2", None] <= 257
    assert counts == [256, 512, 600]


def test_a_gpu_without_events_says_so_once_and_is_not_asked_again(host):
    host.start(h100(0), gb10(1))
    first = host.sample()
    assert first.gpus[0].unknown.get("health") is None
    assert first.gpus[1].unknown["health"] == (
        "no XIDs: events of the driver: not supported; kernel log: not read"
    )
    assert first.errors == []
    before = host.calls()
    assert later(host, 3 * HOUR).gpus[1].unknown["health"] == first.gpus[1].unknown["health"]
    asked = host.calls() - before
    assert asked["nvmlDeviceGetSupportedEventTypes", 1] == 0
    assert asked["nvmlDeviceRegisterEvents", 0] == 0


def test_where_the_kernel_log_is_read_missing_events_are_no_gap(host, log):
    host.start(gb10(0), kernel_log=log.path)
    assert "health" not in host.gpu().unknown


def test_without_permission_for_events_the_other_readings_stand(host, tmp_path):
    host.start(h100(0), kernel_log=tmp_path / "none")
    host.scenario.fail("nvmlDeviceRegisterEvents", nvml.NO_PERMISSION)
    gpu = host.gpu()
    assert (gpu.error, gpu.temperature_celsius) == (None, 31)
    assert gpu.unknown["health"] == (
        "no XIDs: events of the driver: no permission; kernel log: No such file or directory"
    )


def test_events_that_could_not_be_asked_for_are_asked_for_again_after_a_minute(host):
    host.start(h100(0)).fail("nvmlDeviceRegisterEvents", nvml.UNKNOWN)
    assert "unknown error" in host.gpu().unknown["health"]
    host.scenario.heal()
    assert "health" in host.gpu(later=30).unknown
    assert "health" not in host.gpu(later=31).unknown
    host.scenario.event(0, "xid", 62)
    assert events(host.gpu()) == [("xid", 62, 1, True)]


def test_a_set_that_fails_is_made_anew_after_a_minute(host):
    host.start(h100(0))
    host.sample()
    host.scenario.fail("nvmlEventSetWait", nvml.UNKNOWN)
    before = host.calls()
    for _ in range(5):
        assert host.gpu(later=5).error is None
    assert (host.calls() - before)["nvmlEventSetWait_v2", None] == 1
    host.scenario.heal()
    host.sample(later=60)
    host.scenario.event(0, "xid", 62)
    assert events(host.gpu(later=5)) == [("xid", 62, 1, True)]


def test_a_gpu_that_stays_lost_does_not_silence_the_events_of_the_others(host, tmp_path):
    host.start(h100(0), h100(1), kernel_log=tmp_path / "none")
    host.sample()
    host.scenario.event(0, "xid", 79)
    host.scenario.lose(0)  # its set says so in each sample from now on
    for code in (48, 62):
        host.scenario.event(1, "xid", code)
        lost, other = host.sample().gpus
    assert {event.kind for event in lost.health} == {"lost", "xid"}
    assert {event.code for event in other.health} == {48, 62}
    assert lost.unknown["health"] == (
        "no XIDs: events of the driver: the GPU is lost; kernel log: No such file or directory"
    )
    assert "health" not in other.unknown
    before = host.calls()
    later(host, 5)
    assert (host.calls() - before)["nvmlEventSetWait_v2", None] == 1  # that of the other
    host.scenario.heal()
    host.scenario.gpus[0].lines.clear()
    back = later(host, 61).gpus[0]
    assert "health" not in back.unknown
    host.scenario.event(0, "xid", 63)
    assert 63 in {event.code for event in host.gpu().health}


def test_no_getter_is_called_with_the_handle_of_an_event(host):
    # The fake ends the process by a segmentation fault then.
    host.start(h100(0), h100(1)).values["crash_on_bad_handle"] = "yes"
    host.sample()
    host.scenario.event(1, "xid", 79)
    host.scenario.lose(1)
    assert {event.kind for event in host.sample().gpus[1].health} == {"xid", "lost"}


# The kernel log


def test_the_kernel_log_tells_what_happened_before_the_agent_ran(host, log):
    gpu = h100(0)
    log.xid(gpu, 79, ago=600)
    log.xid(gpu, 13, ago=300)
    host.start(gpu, kernel_log=log.path)
    snapshot = host.sample()
    hardware, program = snapshot.gpus[0].health
    assert (hardware.code, hardware.source) == (79, "kernel log")
    assert hardware.last_at == pytest.approx(snapshot.time - 600, abs=5)
    assert (program.code, program.level) == (13, "application")
    assert fault(snapshot) == "XID 79: the GPU has fallen off the bus"


def test_a_flood_in_the_log_is_counted_and_hides_nothing(host, log):
    gpu = h100(0)
    host.start(gpu, kernel_log=log.path)
    host.sample()
    log.xid(gpu, 79)
    for _ in range(1000):
        log.xid(gpu, 31)
    assert events(host.gpu()) == [("xid", 79, 1, True), ("xid", 31, 1000, False)]


def test_what_is_older_than_a_day_is_not_told(host, log):
    gpu = h100(0)
    log.path.write_text(
        f"5,1,0,-;NVRM: Xid (PCI:{gpu['pci.bus_id'][4:-2]}): 79, at the start of the machine\n"
    )
    host.start(gpu, kernel_log=log.path)
    host.sample(later=27 * HOUR)  # the machine's clock since its start, not the calendar's
    assert host.gpu().health == []


def test_one_event_that_both_sources_tell_is_one_whichever_tells_first(host, log):
    gpus = [h100(0), h100(1)]
    host.start(*gpus, kernel_log=log.path)
    host.sample()
    log.xid(gpus[0], 48)
    host.scenario.event(0, "xid", 48)  # both in one sample
    host.scenario.event(1, "xid", 62)  # the driver first, the log in the next one
    host.sample()
    log.xid(gpus[1], 62)
    first, second = host.sample().gpus
    assert (events(first), events(second)) == ([("xid", 48, 1, True)], [("xid", 62, 1, True)])
    assert first.health[0].source == second.health[0].source == "driver, kernel log"


def test_a_broken_gpu_that_the_driver_does_not_list_is_told_for_the_host(host, log):
    absent = h100(5)
    log.xid(absent, 79, ago=60)
    log.xid(absent, 31, ago=60)  # a program's error: nothing to tell
    host.start(h100(0), kernel_log=log.path)
    (error,) = host.sample().errors
    assert error.startswith("A GPU that is not listed here, at PCI 0000:6c:00: XID 79 at ")
    assert later(host, HOUR).errors == []


# States


@pytest.mark.parametrize(
    ("keys", "kind", "level", "text"),
    [
        (
            {"remapped_rows.pending": 1},
            "row_remap",
            "warning",
            "bad memory rows wait for a reset to be replaced by spare ones",
        ),
        (
            {"remapped_rows.failure": 1},
            "row_remap_failure",
            "fault",
            "bad memory rows could not be replaced by spare ones",
        ),
        (
            {
                "retired_pages.pending": 1,
                "retired_pages.corrected": 1,
                "retired_pages.uncorrected": 0,
            },
            "retired_pages",
            "warning",
            "bad memory pages wait for a reset to be taken out of use",
        ),
        (
            {"field.GET_GPU_RECOVERY_ACTION": 1},
            "recovery",
            "fault",
            "the driver asks to recover the GPU: gpu reset",
        ),
        (
            {"field.GET_GPU_RECOVERY_ACTION": 4},
            "recovery",
            "warning",
            "the driver asks to recover the GPU: drain and reset",
        ),
        (
            {"field.GET_GPU_RECOVERY_ACTION": 99},
            "recovery",
            "warning",
            "the driver asks to recover the GPU: other 99",
        ),
        (
            {"ecc.volatile.uncorrected": 2},
            "ecc",
            "fault",
            "2 uncorrected memory errors since the last reset",
        ),
    ],
)
def test_a_state_is_told_until_a_minute_after_it_is_over(host, keys, kind, level, text):
    gpu = host.start(h100(0)).gpus[0]
    assert host.gpu().health == []
    before = dict(gpu.values)
    gpu.values.update(keys)
    later(host, 60)
    snapshot = later(host, 60)
    (event,) = snapshot.gpus[0].health
    assert (event.kind, event.level, event.text, event.ended_at) == (kind, level, text, None)
    assert event.advice
    short = summarize(snapshot).gpus[0]
    assert fault_of(short) == (text if level == "fault" else None)
    assert short.warnings == ([text] if level == "warning" else [])
    gpu.values.clear()
    gpu.values.update(before)
    if kind == "recovery":
        gpu["field.GET_GPU_RECOVERY_ACTION"] = 0
    if kind == "retired_pages":
        gpu["retired_pages.pending"] = 0
    snapshot = later(host, 60)
    (event,) = snapshot.gpus[0].health
    assert event.ended_at == snapshot.time
    assert fault(snapshot) is None
    assert summarize(snapshot).gpus[0].warnings == []


def test_a_state_that_can_not_be_read_any_more_is_not_over(host):
    gpu = host.start(h100(0)).gpus[0]
    gpu["remapped_rows.failure"] = 1
    assert events(host.gpu()) == [("row_remap_failure", None, 1, True)]
    del gpu["remapped_rows.failure"]
    read = later(host, 120).gpus[0]
    assert read.remapped_rows_failure is None
    assert events(read) == [("row_remap_failure", None, 1, True)]


def test_the_counts_of_bad_memory_are_read(host):
    gpu = host.start(h100(0)).gpus[0]
    gpu["remapped_rows.corrected"], gpu["remapped_rows.uncorrected"] = 3, 2
    read = host.gpu()
    assert (read.remapped_rows_corrected, read.remapped_rows_uncorrected) == (3, 2)
    assert (read.remapped_rows_pending, read.remapped_rows_failure) == (False, False)
    assert read.retired_pages_pending is None
    assert read.unknown["retired_pages_pending"] == "not supported"


def test_the_counter_of_memory_errors_says_more_than_an_event_of_one(host):
    gpu = host.start(h100(0)).gpus[0]
    host.sample()
    gpu["ecc.volatile.uncorrected"] = 3
    host.scenario.event(0, "dbe")
    assert events(host.gpu()) == [("ecc", None, 3, True)]
    gpu["ecc.volatile.uncorrected"] = 0
    assert events(host.gpu()) == [("ecc", None, 3, False)]


def test_errors_of_memory_are_over_when_ecc_was_turned_off(host):
    gpu = host.start(h100(0)).gpus[0]
    gpu["ecc.volatile.uncorrected"] = 3
    assert events(host.gpu()) == [("ecc", None, 3, True)]
    for key in [key for key in gpu.values if key.startswith("ecc.")]:
        del gpu[key]
    later(host, 130)
    assert events(host.gpu()) == [("ecc", None, 3, True)]  # not known is not over
    gpu["ecc_mode"] = 0
    later(host, 130)
    assert events(host.gpu()) == [("ecc", None, 3, False)]


def test_where_there_is_no_counter_the_event_of_a_memory_error_is_told(host):
    gpu = host.start(h100(0)).gpus[0]
    for key in [key for key in gpu.values if key.startswith("ecc.")]:
        del gpu[key]
    host.sample()
    host.scenario.event(0, "dbe")
    snapshot = host.sample()
    assert events(snapshot.gpus[0]) == [("ecc", None, 1, True)]
    assert fault(snapshot) == "an uncorrectable memory error"


def test_a_lost_gpu_that_comes_back_keeps_the_time_of_its_loss(host):
    host.start(h100(0), h100(1))
    host.sample()
    host.scenario.lose(1)
    host.sample()
    lost = later(host, 60).gpus[1]
    assert events(lost) == [("lost", None, 1, True)]
    host.scenario.heal()
    snapshot = later(host, 60)
    (event,) = snapshot.gpus[1].health
    assert (event.count, event.ended_at) == (1, snapshot.time)
    assert event.last_at == event.first_at < snapshot.time - 100
    assert fault(snapshot, 1) is None


def test_when_all_gpus_fail_at_once_no_gpu_is_called_broken(host):
    host.start(h100(0), h100(1))
    host.sample()
    host.scenario.fail("*", nvml.UNKNOWN)
    snapshot = host.sample()
    assert "lost access" in snapshot.errors[0]
    assert [(gpu.lost, gpu.health, gpu.missing_since) for gpu in snapshot.gpus] == [
        (False, [], None)
    ] * 2


def test_persistence_mode_that_is_off_is_a_hint_and_no_fault(host):
    host.start(h100(0), rtx(1), gb10(2))
    del host.scenario.gpus[2]["persistence_mode"]
    on, off, unknown = host.sample().gpus
    assert (on.hints, unknown.hints) == ([], [])
    assert len(off.hints) == 1
    assert "nvidia-persistenced" in off.hints[0]
    assert off.health == []


# Missing GPUs


def eight():
    return [h100(index) for index in range(8)]


def test_eight_cards_that_become_seven_give_a_row_for_the_missing_one(host):
    host.start(*eight())
    before = host.sample()
    gone = host.scenario.gpus.pop(3)
    snapshot = host.sample()
    assert (snapshot.gpu_count, len(snapshot.gpus), snapshot.errors) == (7, 8, [])
    row = snapshot.gpus[7]
    assert (row.index, row.uuid, row.name) == (7, gone["uuid"], gone["name"])
    assert (row.lost, row.pci_bus_id) == (True, before.gpus[3].pci_bus_id)
    assert row.missing_since == snapshot.time
    assert row.error.startswith("missing since ")
    assert row.error.endswith(": the driver counts 7 GPUs")
    assert events(row) == [("missing", None, 1, True)]
    assert "restart the agent" in row.health[0].advice
    assert fault(snapshot, 7) == row.error
    assert [gpu.error for gpu in snapshot.gpus[:7]] == [None] * 7
    assert later(host, HOUR).gpus[7].missing_since == row.missing_since


def test_a_missing_gpu_that_comes_back_is_well_and_keeps_the_time(host):
    host.start(h100(0), h100(1))
    host.sample()
    gone = host.scenario.gpus.pop()
    missing = host.sample().gpus[1]
    host.scenario.gpus.append(gone)
    snapshot = later(host, 60)
    assert len(snapshot.gpus) == 2
    back = snapshot.gpus[1]
    assert (back.uuid, back.missing_since, back.error) == (gone["uuid"], None, None)
    assert events(back) == [("missing", None, 1, False)]
    assert (back.health[0].first_at, back.health[0].ended_at) == (
        missing.missing_since,
        snapshot.time,
    )


def test_a_driver_that_is_reloaded_leaves_no_ghosts(host):
    host.start(*eight())
    host.sample()
    host.scenario.fail("nvmlDeviceGetCount", nvml.UNKNOWN)
    host.scenario.fail("nvmlInit", nvml.DRIVER_NOT_LOADED)
    assert all(gpu.missing_since is None for gpu in host.sample().gpus)
    host.scenario.heal()
    host.scenario.gpus.reverse()  # the driver may number its GPUs anew
    snapshot = later(host, 60)
    assert [gpu.uuid for gpu in snapshot.gpus] == [gpu["uuid"] for gpu in host.scenario.gpus]
    assert [gpu.health for gpu in snapshot.gpus] == [[]] * 8


def test_all_that_goes_missing_is_told_too(host):
    host.start(h100(0), h100(1))
    host.sample()
    host.scenario.gpus.clear()
    snapshot = host.sample()
    assert snapshot.gpu_count == 0
    assert [gpu.error.endswith("the driver counts 0 GPUs") for gpu in snapshot.gpus] == [True] * 2


def test_a_missing_gpu_beside_one_without_a_name_is_told_for_the_host(host):
    host.start(h100(0), h100(1), h100(2))
    host.sample()
    host.scenario.gpus.pop()
    host.scenario.fail("nvmlDeviceGetHandleByIndex", nvml.NO_PERMISSION, gpu=1)
    snapshot = host.sample()
    assert len(snapshot.gpus) == 2
    assert snapshot.errors[0].startswith("The driver counts 2 GPUs, 1 fewer than before.")
    host.scenario.heal()
    snapshot = host.sample()
    assert (len(snapshot.gpus), snapshot.errors) == (3, [])


# What outlives the sampler


def kept(path):
    """Return what the state file holds, once it is there."""
    until(path.exists, "the state file is written")
    return json.loads(path.read_bytes())


def test_a_gpu_that_goes_missing_while_the_agent_is_down_is_told(host, state):
    host.start(*eight(), state=state)
    host.sample()
    assert len(kept(state)["gpus"]) == 8
    gone = host.scenario.gpus.pop(0)
    host.restart(state=state)
    row = host.sample().gpus[-1]
    assert (row.uuid, row.name) == (gone["uuid"], gone["name"])
    since = row.missing_since
    host.restart(state=state)
    assert host.sample().gpus[-1].missing_since == since


def test_removing_the_file_forgets_the_missing_gpu_without_a_restart(host, state):
    host.start(h100(0), h100(1), state=state)
    host.sample()
    host.scenario.gpus.pop()
    row = host.sample().gpus[-1]
    assert row.health[0].advice.endswith(f"if it was taken out on purpose: rm {state}")
    host.restart(state=state)
    assert len(host.sample().gpus) == 2
    state.unlink()
    until(lambda: len(host.sample().gpus) == 1, "the missing GPU is forgotten")
    host.restart(state=state)
    assert len(host.sample().gpus) == 1


def test_an_event_of_the_driver_outlives_a_sampler_that_crashes_in_the_same_sample(host, state):
    host.start(h100(0), h100(1), state=state)
    host.sample()
    kept(state)
    host.scenario.event(1, "xid", 79)
    host.scenario.crash("nvmlDeviceGetHandleByIndex", gpu=1)
    host.scenario.slow("nvmlDeviceGetHandleByIndex", 500, gpu=0)  # time for the disk
    with pytest.raises(AssertionError, match="the collector ended"):
        host.sample()
    host.stop()
    host.scenario.heal()
    host.scenario.gpus[1].lines.clear()  # this driver would tell its new listener the old event
    host.restart(state=state)
    snapshot = host.sample()
    assert events(snapshot.gpus[1]) == [("xid", 79, 1, True)]
    assert fault(snapshot, 1) == "XID 79: the GPU has fallen off the bus"


def test_what_the_log_told_before_is_not_counted_twice_after_a_restart(host, log, state):
    gpu = h100(0)
    log.xid(gpu, 62)
    host.start(gpu, kernel_log=log.path, state=state)
    assert events(host.gpu()) == [("xid", 62, 1, True)]
    kept(state)
    host.restart(kernel_log=log.path, state=state)
    log.xid(gpu, 62)
    assert events(host.gpu()) == [("xid", 62, 2, True)]


def test_an_xid_of_a_gpu_that_was_never_reached_waits_for_its_name(host, log, state):
    gpu = h100(0)
    log.xid(gpu, 79)
    host.start(gpu, kernel_log=log.path, state=state).crash("nvmlInit")
    host.scenario.slow("nvmlInit", 500)  # time for the disk
    with pytest.raises(AssertionError, match="the collector ended"):
        host.sample()
    host.stop()
    host.scenario.heal()
    host.restart(kernel_log=log.path, state=state)
    assert events(host.gpu()) == [("xid", 79, 1, True)]


def test_a_new_start_of_the_machine_ends_the_faults_of_before(host, log, state):
    gpu = h100(0)
    log.xid(gpu, 79)
    host.start(gpu, kernel_log=log.path, state=state)
    assert fault(host.sample()) is not None
    until(lambda: kept_count(state) == 1, "the XID is kept")
    old = kept(state)
    host.restart()
    state.write_text(json.dumps(old | {"boot_id": "another"}))
    log.path.write_text("")
    log.sequence = 0
    log.xid(gpu, 13)
    host.restart(kernel_log=log.path, state=state)
    snapshot = host.sample()
    assert fault(snapshot) is None
    assert sorted(events(snapshot.gpus[0])) == [("xid", 13, 1, False), ("xid", 79, 1, False)]


def test_a_state_file_that_comes_after_the_first_samples_is_added_and_not_lost(host, log, state):
    """A pipe stands for a disk that is slow at the start of the machine."""
    gpus = [h100(0), h100(1)]
    log.xid(gpus[0], 79)
    host.start(*gpus, kernel_log=log.path, state=state)
    host.sample()
    until(lambda: kept_count(state) == 1, "the XID is kept")
    old = state.read_bytes()
    host.restart()
    state.unlink()
    os.mkfifo(state)
    host.scenario.gpus.pop()
    host.restart(kernel_log=log.path, state=state)
    assert [len(host.sample().gpus) for _ in range(3)] == [1, 1, 1]
    assert not state.is_file()
    state.write_bytes(old)
    until(lambda: len(host.sample().gpus) == 2, "the GPU that is missing is known again")
    snapshot = host.sample()
    assert snapshot.gpus[1].missing_since is not None
    assert events(snapshot.gpus[0]) == [("xid", 79, 1, True)]  # told by the log and by the file
    until(state.is_file, "it is written, now that it was read")
    assert len(kept(state)["gpus"]) == 2


def test_a_sampler_beside_the_one_that_writes_keeps_off_the_file(host, make_host, state):
    host.start(h100(0), h100(1), state=state)
    host.sample()
    kept(state)
    trial = make_host()
    trial.start(h100(0), h100(1), state=state)  # as when a GPU that hung is tried again
    trial.sample()
    trial.scenario.event(1, "xid", 62)
    trial.sample()
    host.scenario.event(0, "xid", 79)
    host.sample()
    until(lambda: kept(state)["entries"], "the XID of the first is kept")
    for _ in range(5):
        trial.sample()
    uuids = [gpu["uuid"] for gpu in host.scenario.gpus]
    assert [bool(kept(state)["entries"].get(uuid)) for uuid in uuids] == [True, False]
    host.restart()  # the first one ends, and the trial takes its place
    until(lambda: trial.sample().gpus[0].health, "the other takes over what it kept")
    until(lambda: kept(state)["entries"].get(uuids[1]), "both are kept")
    assert [events(gpu) for gpu in trial.sample().gpus] == [
        [("xid", 79, 1, True)],
        [("xid", 62, 1, True)],
    ]


@pytest.mark.parametrize("step", [5 * HOUR, -5 * HOUR, 40 * 365 * 24 * HOUR])
def test_a_clock_that_is_set_changes_neither_the_age_of_a_fault_nor_since_when_a_gpu_is_missing(
    host, state, step
):
    host.start(h100(0), h100(1), state=state)
    host.sample()
    host.scenario.event(0, "xid", 79)
    host.sample()
    host.scenario.gpus[0].lines.clear()  # this driver would tell its new listener the old event
    host.scenario.gpus.pop()
    host.sample()
    later(host, 600)
    snapshot = host.sample(wall_step=step)
    well, missing = snapshot.gpus
    (event,) = well.health
    assert event.ended_at is None
    assert snapshot.time - event.last_at == pytest.approx(600, abs=5)
    assert snapshot.time - missing.missing_since == pytest.approx(600, abs=5)
    assert snapshot.time - missing.health[0].first_at == pytest.approx(600, abs=5)
    since = clock(missing.missing_since, snapshot.time)
    assert missing.error == f"missing since {since}: the driver counts 1 GPU"
    assert later(host, HOUR - 500).gpus[0].health[0].ended_at is not None
    until(lambda: kept(state)["gpus"][missing.uuid]["missing_since"] is not None, "it is kept")
    host.restart(state=state)  # by the clock of this machine, which is another one now
    now = host.sample()
    for gpu in now.gpus:
        for found in gpu.health:
            assert found.first_at <= found.last_at <= now.time


def test_a_time_that_is_still_to_come_is_told_as_not_known(host, state):
    host.start(h100(0), h100(1), state=state)
    host.sample()
    gone = host.scenario.gpus.pop()
    host.sample()
    until(lambda: any(kept(state)["entries"].values()), "it is kept")
    old = kept(state)
    host.restart()
    old["boot_id"] = "another"
    old["gpus"][gone["uuid"]]["missing_since"] += 9 * HOUR
    for entry in old["entries"][gone["uuid"]]:
        for seen in entry["sources"].values():
            seen["first_at"] += 9 * HOUR
            seen["last_at"] += 9 * HOUR
    state.write_text(json.dumps(old))
    host.restart(state=state)
    snapshot = host.sample()
    row = snapshot.gpus[1]
    assert row.error.startswith("missing since before the start of this machine at ")
    assert row.missing_since < snapshot.time
    assert [(e.first_at, e.last_at, e.ended_at) for e in row.health] == [(None, None, None)]


def test_a_state_that_no_start_ends_and_nothing_reads_any_more_says_so(host, state):
    gpu = host.start(h100(0), state=state).gpus[0]
    gpu["remapped_rows.failure"] = 1
    gpu["ecc.volatile.uncorrected"] = 2
    host.sample()
    until(lambda: any(kept(state)["entries"].values()), "it is kept")
    old = kept(state)
    host.restart()
    state.write_text(json.dumps(old | {"boot_id": "another"}))
    for key in [key for key in gpu.values if key.startswith(("ecc.", "remapped_rows."))]:
        del gpu[key]  # a driver that no longer tells them
    host.restart(state=state)
    row = host.gpu()
    assert sorted(events(row)) == [
        ("ecc", None, 2, False),
        ("row_remap_failure", None, 1, True),
    ]
    assert "(not readable since " in row.health[0].text
    until(lambda: kept(state)["boot_id"] != "another", "it is written anew")
    state.unlink()
    until(lambda: len(host.gpu().health) == 1, "removing the file says: I know")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\x00", b'{"gpus": 7}', b"[]", NO_SOURCE])
def test_a_state_file_that_can_not_be_used_is_replaced(host, state, data):
    state.write_bytes(data)
    host.start(h100(0), state=state)
    assert host.gpu().error is None
    until(lambda: state.read_bytes() != data, "the file is replaced")
    assert len(kept(state)["gpus"]) == 1


def test_foreign_text_in_the_state_file_is_made_harmless(host, state):
    host.start(h100(0), h100(1), state=state)
    host.sample()
    old = kept(state)
    host.restart()
    gone = host.scenario.gpus.pop()
    old["gpus"][gone["uuid"]]["name"] = "H100\x1b[31m"
    state.write_text(json.dumps(old))
    host.restart(state=state)
    assert host.sample().gpus[-1].name == "H100\ufffd[31m"


def test_a_quiet_host_does_not_write(host, state):
    host.start(*eight(), state=state)
    host.sample()
    kept(state)
    before = os.stat(state).st_ino
    for _ in range(30):
        later(host, 60)
    host.restart()  # the end writes what was not written yet
    assert os.stat(state).st_ino == before


def test_a_restless_host_writes_a_few_times_and_then_once_a_minute(host, log, state):
    gpu = h100(0)
    host.start(gpu, kernel_log=log.path, state=state)
    host.sample()
    kept(state)
    counts = []
    for _ in range(40):
        log.xid(gpu, 31)
        host.sample()
    for _ in range(40):  # time for the disk
        host.sample()
        counts.append(kept_count(state))
    assert max(counts) == 4  # the first of five writes was that of the GPU
    log.xid(gpu, 31)
    later(host, 61)
    until(lambda: kept_count(state) == 41, "the next minute's write")


def kept_count(path: Path) -> int:
    entries = kept(path)["entries"]
    return next(iter(entries.values()))[0]["sources"]["kernel log"]["count"] if entries else 0
