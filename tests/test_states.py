"""The state rules: what each word means, and that unknown is never free or idle."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config import Limits
from gpumon.states import (
    GPU_STATES,
    HOST_STATES,
    HostState,
    Named,
    Window,
    believed_interval,
    fault_of,
    gpu_state,
    host_state,
    is_free,
    is_held,
    is_unused,
    memory_floor_mib,
    mig_state,
    occupants,
    whole_gpu,
)
from gpumon.summary import GpuSummary, Holder, MigSummary

NOW = 1_764_000_000.0
LIMITS = Limits()
HOUR = 3600.0
BOB = Holder(user="bob", pids=[7], gpu_memory_used_mib=2000, started_at=NOW - 9 * HOUR)
XORG = Holder(user="root", pids=[1], started_at=NOW - 99 * HOUR, graphics_only=True)


def gpu(**fields: object) -> GpuSummary:
    """A healthy, empty 24 GB card, changed by `fields`."""
    empty = GpuSummary(
        index=0,
        name="NVIDIA GeForce RTX 3090",
        utilization_percent=0,
        memory_total_mib=24576,
        memory_used_mib=10,
        memory_reserved_mib=300,
        processes_known=True,
    )
    return msgspec.structs.replace(empty, **fields)


def instance(**fields: object) -> MigSummary:
    empty = MigSummary(
        index=0,
        name="1g.10gb",
        memory_total_mib=9856,
        memory_used_mib=12,
        memory_reserved_mib=5,
        processes_known=True,
    )
    return msgspec.structs.replace(empty, **fields)


def window(**fields: float) -> Window:
    return Window(**{"observed_for": 10 * HOUR, **fields})


def named(
    card: GpuSummary,
    runs: Window | None = None,
    *,
    host: HostState = "fresh",
    host_reason: str | None = None,
    drained: bool = False,
) -> Named:
    runs = runs or window()
    whole = whole_gpu(card, runs, host=host, host_reason=host_reason, drained=drained, now=NOW)
    return gpu_state(card, runs, whole, limits=LIMITS, now=NOW)


# Free


def test_an_empty_gpu_is_free_since_its_run_began():
    found = named(gpu(), window(free_for=HOUR, sample_age=4.0))
    assert found == Named(state="free", since=NOW - HOUR - 4.0)


def test_a_gpu_that_was_free_when_the_watch_began_is_free_since_then_at_least():
    found = named(gpu(), Window(free_for=HOUR, observed_for=HOUR))
    assert (found.since, found.since_at_least) == (NOW - HOUR, True)


def test_a_gpu_seen_for_the_first_time_is_free_without_a_since():
    assert named(gpu(), Window()) == Named(state="free")


def test_a_gpu_without_utilization_is_free_when_nobody_is_on_it():
    assert named(gpu(utilization_percent=None)).state == "free"


def test_a_display_server_within_the_floor_leaves_a_gpu_free():
    assert named(gpu(holders=[XORG], memory_used_mib=300, utilization_percent=9)).state == "free"


@pytest.mark.parametrize(
    "missing", [{"memory_used_mib": None}, {"processes_known": False}], ids=lambda m: next(iter(m))
)
def test_a_gpu_of_which_half_is_unknown_is_not_free(missing):
    found = named(gpu(**missing))
    assert found.state == "unknown"
    assert "could not be read" in str(found.reason)


def test_a_used_gpu_without_a_visible_process_is_busy_and_says_so():
    # As in a container, where the process lists come back empty.
    found = named(gpu(utilization_percent=93, memory_used_mib=400))
    assert (found.state, found.reason) == ("busy", "93 % used, no process visible")


def test_with_unified_memory_the_process_list_alone_decides():
    gb10 = gpu(unified_memory=True, memory_total_mib=None, memory_used_mib=None)
    assert named(gb10).state == "free"
    assert named(msgspec.structs.replace(gb10, processes_known=False)).state == "unknown"


# The floor


@pytest.mark.parametrize(
    ("total", "reserve_known", "floor"),
    [
        (24576, True, 512),
        (144384, True, 1443),
        (24576, False, 1024),
        (144384, False, 2165),
        (None, True, 512),
        (None, False, 1024),
    ],
)
def test_the_memory_floor_grows_with_the_card(total, reserve_known, floor):
    assert memory_floor_mib(total, reserve_known) == floor


def test_memory_at_the_floor_is_nobodys_and_above_it_somebodys():
    assert is_held(gpu(memory_used_mib=512)) is False
    assert is_held(gpu(memory_used_mib=513)) is True


def test_an_old_driver_that_counts_its_reserve_as_used_does_not_make_gpus_held():
    assert is_held(gpu(memory_used_mib=912, memory_reserved_mib=None)) is False


# Busy


def test_a_held_gpu_is_busy_since_its_oldest_process_began_at_most():
    younger = Holder(user="amy", pids=[8], started_at=NOW - HOUR)
    found = named(gpu(holders=[younger, BOB]))
    assert found == Named(state="busy", since=NOW - 9 * HOUR, since_at_most=True)


def test_a_held_gpu_is_busy_since_the_first_of_its_holders_was_seen_to_come():
    """However old his process is."""
    bob = msgspec.structs.replace(BOB, on_gpu_since=NOW - 60)
    amy = Holder(user="amy", pids=[8], started_at=NOW - HOUR, on_gpu_since=NOW - 30)
    assert named(gpu(holders=[amy, bob])) == Named(state="busy", since=NOW - 60)


def test_who_may_have_been_there_longer_leaves_open_since_when():
    amy = Holder(user="amy", pids=[8], started_at=NOW - 60, on_gpu_since=NOW - 60)
    found = named(gpu(holders=[amy, BOB]))
    assert (found.since, found.since_at_most) == (BOB.started_at, True)


def test_with_a_holder_of_whom_nothing_is_known_it_is_busy_since_it_is_watched_at_least():
    hidden = Holder(user="mei", pids=[9])
    runs = window(held_for=HOUR, held_at_least=True)
    found = named(gpu(holders=[hidden, BOB]), runs)
    assert found == Named(state="busy", since=NOW - HOUR, since_at_least=True)


def test_a_display_server_does_not_date_a_gpu_that_somebody_else_holds():
    assert named(gpu(holders=[XORG, BOB])).since == BOB.started_at


def test_a_gpu_held_by_memory_alone_is_busy_since_it_was_seen_so():
    found = named(gpu(memory_used_mib=61_000), window(held_for=HOUR))
    assert found == Named(
        state="busy", reason="61000 MiB in use, no process visible", since=NOW - HOUR
    )


def test_a_held_gpu_is_busy_where_nobody_knows_its_use():
    assert named(gpu(holders=[BOB], utilization_percent=None)).state == "busy"


def test_a_process_is_enough_where_memory_is_unknown():
    assert named(gpu(holders=[BOB], memory_used_mib=None)).state == "busy"


# Idle


def test_a_gpu_held_and_unused_for_half_an_hour_is_idle_since_then():
    runs = window(unused_for=1800.0, held_for=5 * HOUR)
    found = named(gpu(holders=[BOB]), runs)
    assert found == Named(state="idle", reason="held, not used for 30 min", since=NOW - 1800.0)
    assert named(gpu(holders=[BOB]), window(unused_for=1799.0, held_for=5 * HOUR)).state == "busy"


def test_a_job_that_just_came_to_a_long_unused_gpu_is_not_idle():
    runs = window(unused_for=24 * HOUR, held_for=60.0)
    assert named(gpu(holders=[BOB]), runs).state == "busy"


def test_an_idle_run_as_long_as_the_watch_began_earlier():
    found = named(gpu(holders=[BOB]), Window(unused_for=HOUR, held_for=2 * HOUR, observed_for=HOUR))
    assert (found.state, found.since_at_least) == ("idle", True)


def test_an_idle_gpu_that_was_held_when_the_watch_began_is_idle_since_then_at_least():
    runs = window(unused_for=3 * HOUR, held_for=2 * HOUR)
    found = named(gpu(holders=[BOB]), runs)
    assert (found.since, found.since_at_least) == (NOW - 2 * HOUR, False)
    found = named(gpu(holders=[BOB]), msgspec.structs.replace(runs, held_at_least=True))
    assert (found.since, found.since_at_least) == (NOW - 2 * HOUR, True)


def test_a_gpu_that_is_used_right_now_is_not_idle_whatever_its_window_says():
    runs = window(unused_for=5 * HOUR, held_for=5 * HOUR)
    assert named(gpu(holders=[BOB], utilization_percent=6), runs).state == "busy"
    assert named(gpu(holders=[BOB], utilization_percent=5), runs).state == "idle"
    assert named(gpu(holders=[BOB], utilization_percent=None), runs).state == "busy"


def test_the_limits_are_the_configured_ones():
    strict = Limits(used_percent=50.0, idle_minutes=1.0)
    runs = window(unused_for=60.0, held_for=60.0)
    card = gpu(holders=[BOB], utilization_percent=50)
    assert gpu_state(card, runs, None, limits=strict, now=NOW).state == "idle"


# Fault, unknown, drained


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"lost": True, "error": "GPU is lost"}, "GPU is lost"),
        ({"lost": True}, "the driver lost this GPU"),
        ({"ecc_volatile_uncorrected": 1}, "1 uncorrected memory error since the last reset"),
        ({"ecc_volatile_uncorrected": 3}, "3 uncorrected memory errors since the last reset"),
        (
            {"slowdown": ["hw_slowdown", "hw_thermal_slowdown"]},
            "slowed down by its hardware: hw slowdown, hw thermal slowdown",
        ),
        ({"fault": "XID 62: halted"}, "XID 62: halted"),
        (
            {"fault": "XID 62: halted", "slowdown": ["hw_slowdown"]},
            "XID 62: halted; slowed down by its hardware: hw slowdown",
        ),
        (
            {
                "fault": "bad rows; 2 uncorrected memory errors since the last reset",
                "ecc_volatile_uncorrected": 2,
            },
            "bad rows; 2 uncorrected memory errors since the last reset",
        ),
        ({"lost": True, "error": "missing", "fault": "XID 79: off the bus"}, "missing"),
    ],
)
def test_a_broken_gpu_is_a_fault_with_its_reason(broken, words):
    found = named(gpu(**broken), window(fault_for=60.0))
    assert found == Named(state="fault", reason=words, since=NOW - 60.0)


def test_zero_ecc_errors_and_unknown_ones_are_no_fault():
    assert fault_of(gpu(ecc_volatile_uncorrected=0)) is None
    assert fault_of(gpu(ecc_volatile_uncorrected=None)) is None


def test_a_warning_is_no_fault_and_touches_no_state():
    warned = gpu(warnings=["bad memory rows wait for a reset"])
    assert fault_of(warned) is None
    assert named(warned).state == "free"


def test_a_gpu_that_could_not_be_read_is_unknown_and_says_why():
    assert named(gpu(error="Unknown Error (999)")) == Named(
        state="unknown", reason="Unknown Error (999)"
    )


def test_the_first_rule_that_fits_wins():
    card = gpu(lost=True, error="GPU is lost", holders=[BOB])
    assert named(card, host="stale", drained=True).state == "unknown"
    assert named(card, drained=True).state == "fault"
    assert named(gpu(error="x"), drained=True).state == "unknown"
    assert named(gpu(holders=[BOB]), drained=True).state == "drained"
    assert named(gpu(holders=[BOB])).state == "busy"


def test_a_gpu_of_a_silent_host_says_what_the_host_says():
    assert named(gpu(), host="stale", host_reason="refused").reason == "refused"
    assert named(gpu(), host="down").reason == "the host is down"


# MIG


def mig(*instances: MigSummary, **fields: object) -> GpuSummary:
    parts = [msgspec.structs.replace(part, index=i) for i, part in enumerate(instances)]
    return gpu(mig_mode=True, mig=parts, utilization_percent=None, **fields)


def test_a_gpu_in_mig_mode_is_free_only_when_all_instances_are():
    assert named(mig(instance(), instance())).state == "free"
    found = named(mig(instance(), instance(holders=[BOB])))
    assert found == Named(state="busy", since=BOB.started_at, since_at_most=True)


def test_the_memory_of_a_gpu_in_mig_mode_says_nothing_about_its_instances():
    assert named(mig(instance(), instance(), memory_used_mib=9000)).state == "free"


def test_a_gpu_in_mig_mode_without_instances_is_out_of_use_not_free():
    assert named(mig()).state == "drained"


def test_a_gpu_whose_instances_could_not_be_listed_is_unknown():
    assert named(mig(mig_known=False)).state == "unknown"
    assert named(mig(instance(), mig_known=False)).state == "unknown"


def test_a_gpu_of_which_it_is_not_known_whether_mig_is_on_is_never_free():
    quiet = named(gpu(mig_known=False))
    assert (quiet.state, quiet.reason) == ("unknown", "whether MIG is on could not be read")
    assert named(gpu(mig_known=False, holders=[BOB])).state == "busy"
    assert named(gpu(mig_known=False, memory_used_mib=9000)).state == "busy"


def test_one_unreadable_instance_costs_its_own_row_only():
    card = mig(instance(), instance(error="Not Found", memory_used_mib=None))
    assert named(card).state == "unknown"
    states = [mig_state(part, window(), None, limits=LIMITS, now=NOW).state for part in card.mig]
    assert states == ["free", "unknown"]


def test_an_instance_shares_the_fate_of_its_gpu():
    fault = Named(state="fault", reason="lost")
    assert mig_state(instance(), window(), fault, limits=LIMITS, now=NOW) is fault


def test_a_held_instance_is_busy_and_never_idle():
    runs = window(unused_for=9 * HOUR, held_for=9 * HOUR)
    found = mig_state(instance(holders=[BOB]), runs, None, limits=LIMITS, now=NOW)
    assert found == Named(state="busy", since=BOB.started_at, since_at_most=True)


def test_occupants_of_a_gpu_in_mig_mode_are_those_of_all_instances():
    amy = Holder(user="amy", pids=[9])
    card = mig(instance(holders=[BOB]), instance(holders=[amy]), holders=[XORG])
    assert occupants(card) == [BOB, amy]
    assert occupants(gpu(holders=[XORG])) == [XORG]


# Hosts

PACE = {"poll_interval": 5.0, "rpc_timeout": 2.0, "sample_interval": 5.0}


@pytest.mark.parametrize(
    ("since_answer", "sample_age", "state"),
    [
        (None, None, "never"),
        (0.0, 0.0, "fresh"),
        (12.0, 5.0, "fresh"),
        (12.1, 5.0, "stale"),
        (0.0, 22.0, "fresh"),
        (0.0, 22.1, "stale"),
        (10.0, 12.1, "stale"),
        (0.0, None, "stale"),
        (300.0, 1.0, "stale"),
        (300.1, 1.0, "down"),
        (300.1, None, "down"),
        (0.0, -3600.0, "fresh"),
        (12.1, -3600.0, "stale"),
    ],
)
def test_a_host_is_fresh_for_two_polls_and_down_after_five_minutes(since_answer, sample_age, state):
    assert host_state(since_answer, sample_age, **PACE) == state


def test_a_host_that_is_polled_rarely_is_not_down_between_two_polls():
    rare = {"poll_interval": 600.0, "rpc_timeout": 2.0, "sample_interval": 5.0}
    assert host_state(700.0, 1.0, **rare) == "fresh"
    assert host_state(1203.0, 1.0, **rare) == "down"


def test_an_agent_can_not_talk_an_old_reading_fresh():
    boasting = {**PACE, "sample_interval": 1e9}
    assert host_state(0.0, 613.0, **boasting) == "stale"
    assert believed_interval(-5.0) == 0.0
    assert believed_interval(None) == 0.0


# Whatever the reading

percents = st.one_of(st.none(), st.integers(0, 110))
mibs = st.one_of(st.none(), st.integers(0, 100_000))
texts = st.one_of(st.none(), st.sampled_from(["", "Not Supported"]))
times = st.one_of(st.none(), st.floats(0, 2e9))
holders = st.lists(
    st.builds(
        Holder,
        user=texts,
        pids=st.lists(st.integers(1, 9), max_size=2),
        gpu_memory_used_mib=mibs,
        started_at=times,
        graphics_only=st.booleans(),
    ),
    max_size=2,
)
common = {
    "index": st.integers(0, 8),
    "error": texts,
    "memory_total_mib": mibs,
    "memory_used_mib": mibs,
    "memory_reserved_mib": mibs,
    "processes_known": st.booleans(),
    "holders": holders,
}
instances = st.builds(MigSummary, **common)
cards = st.builds(
    GpuSummary,
    **common,
    lost=st.booleans(),
    utilization_percent=percents,
    unified_memory=st.booleans(),
    slowdown=st.lists(st.just("hw_slowdown"), max_size=1),
    ecc_volatile_uncorrected=st.one_of(st.none(), st.integers(0, 2)),
    fault=st.one_of(st.none(), st.just("XID 62: halted")),
    mig_mode=st.one_of(st.none(), st.booleans()),
    mig=st.lists(instances, max_size=2),
    mig_known=st.booleans(),
)
lengths = st.one_of(st.none(), st.floats(0, 1e6))
windows = st.builds(
    Window,
    unused_for=lengths,
    held_for=lengths,
    free_for=lengths,
    fault_for=lengths,
    observed_for=st.floats(0, 1e6),
    sample_age=st.floats(0, 100),
)
host_states = st.sampled_from(HOST_STATES)


@given(cards, windows, host_states, st.booleans())
def test_every_reading_has_exactly_one_state_and_unknown_is_never_free_or_idle(
    card, runs, host, drained
):
    found = named(card, runs, host=host, drained=drained)
    assert found.state in GPU_STATES
    if host != "fresh":
        assert found.state == "unknown"
        return
    if found.state == "free":
        assert is_free(card, LIMITS) is True
        assert is_held(card) is False
        assert card.error is None
        assert not drained
    if found.state == "idle":
        assert is_held(card) is True
        assert is_unused(card, LIMITS) is True
        assert runs.unused_for is not None
        assert runs.held_for is not None
    if found.state in ("unknown", "fault", "drained"):
        assert found.reason is not None


@given(cards, windows, host_states, st.booleans())
def test_the_rules_stand_in_their_order(card, runs, host, drained):
    """fault hides drained, drained hides who is on it, and nothing hides a silent host."""
    found = named(card, runs, host=host, drained=drained)
    if host == "fresh":
        assert (found.state == "fault") == (fault_of(card) is not None)
        if drained:
            assert found.state in ("fault", "unknown", "drained")


@given(instances, windows)
def test_an_instance_is_free_only_when_all_of_it_was_read(part, runs):
    found = mig_state(part, runs, None, limits=LIMITS, now=NOW)
    assert found.state in ("free", "busy", "unknown")
    if found.state == "free":
        assert part.processes_known
        assert part.memory_used_mib is not None
        assert part.error is None
        assert all(holder.graphics_only for holder in part.holders)


@given(
    st.one_of(st.none(), st.floats(0, 1e5)),
    st.one_of(st.none(), st.floats(-1e5, 1e5)),
    st.floats(0, 1e4),
)
def test_a_host_does_not_get_fresher_by_waiting(since_answer, sample_age, wait):
    order = {"fresh": 0, "stale": 1, "down": 2, "never": 3}
    first = host_state(since_answer, sample_age, **PACE)
    later = None if since_answer is None else since_answer + wait
    assert order[host_state(later, sample_age, **PACE)] >= order[first]
