"""Runs of samples: when they begin, what goes on, what ends them."""

from __future__ import annotations

import msgspec
import pytest
from cluster.cluster_tools import WALL, a_gpu, a_process, a_snapshot

from gpumon.config import Limits
from gpumon.model import Gpu, MigInstance
from gpumon.states import Window
from gpumon.summary import GpuSummary, summarize
from gpumon.windows import Watch, advance, gpu_key, mig_key

GAP = 20.0
USED = {"utilization_percent": 80, "processes": [a_process()], "memory_used_mib": 30_000}
HELD = {"processes": [a_process()], "memory_used_mib": 30_000}


class Watched:
    """A host that is sampled at given seconds after the beginning."""

    def __init__(self, host_clock_off_by: float = 0.0) -> None:
        self.off_by = host_clock_off_by
        self.watch: Watch | None = None
        self.gpus: list[GpuSummary] = []

    def time(self, second: float) -> float:
        """A moment by the host's clock."""
        return WALL + self.off_by + second

    def sample(self, second: float, *gpus: Gpu) -> None:
        summary = summarize(a_snapshot(*gpus, time=self.time(second)))
        self.gpus = summary.gpus
        self.watch = advance(self.watch, summary, sampled=second, limits=Limits(), longest_gap=GAP)

    def came(self) -> list[float | None]:
        """Since when each holder of the first GPU is on it, as far as that was seen."""
        return [holder.on_gpu_since for holder in self.gpus[0].holders]

    def window(self, key: str = "GPU-0000", now: float | None = None) -> Window:
        assert self.watch is not None
        return self.watch.window(key, self.watch.sampled if now is None else now)


def test_a_run_lasts_from_its_first_to_its_last_sample():
    host = Watched()
    for second in (0, 10, 20):
        host.sample(second, a_gpu())
    assert host.window() == Window(unused_for=20.0, free_for=20.0, observed_for=20.0)


def test_what_happens_after_the_last_sample_is_not_known():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu())
    window = host.window(now=17.0)
    assert (window.free_for, window.sample_age) == (10.0, 7.0)


def test_a_use_ends_the_unused_run_and_a_holder_the_free_one():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(**USED))
    host.sample(20, a_gpu(**HELD))
    host.sample(30, a_gpu(**HELD))
    assert host.window() == Window(unused_for=10.0, held_for=20.0, observed_for=30.0)
    host.sample(40, a_gpu())
    assert host.window() == Window(unused_for=20.0, free_for=0.0, observed_for=40.0)


@pytest.mark.parametrize(
    ("unknown", "ended", "observed"),
    [
        ({"utilization_percent": None}, "unused_for", 20.0),
        ({"memory_used_mib": None}, "free_for", 0.0),
        ({"processes": None}, "free_for", 0.0),
        ({"error": "the driver timed out"}, "free_for", 0.0),
    ],
)
def test_a_sample_that_does_not_say_ends_the_run(unknown, ended, observed):
    """What is seen after one that did not say who is there is a first look: it may be older."""
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(**unknown))
    assert getattr(host.window(), ended) is None
    host.sample(20, a_gpu())
    assert getattr(host.window(), ended) == 0.0
    assert host.window().observed_for == observed


def test_a_fault_seen_after_an_unread_sample_may_have_begun_before():
    host = Watched()
    host.sample(0, a_gpu(ecc_volatile_uncorrected=2))
    host.sample(10, a_gpu(error="the driver timed out"))
    host.sample(20, a_gpu(ecc_volatile_uncorrected=2))
    window = host.window()
    assert (window.fault_for, window.fault_at_least) == (0.0, True)


def test_a_gpu_that_was_put_in_the_place_of_another_begins_anew():
    host = Watched()
    host.sample(0, a_gpu(uuid="GPU-a", ecc_volatile_uncorrected=2))
    host.sample(10, a_gpu(uuid=None, error="GPU is lost", lost=True))
    host.sample(20, a_gpu(uuid="GPU-b", ecc_volatile_uncorrected=2))
    window = host.window("GPU-b")
    assert (window.fault_for, window.fault_at_least) == (0.0, True)


def test_a_pid_that_another_user_has_now_is_another_process():
    host = Watched()
    host.sample(0, a_gpu())
    for second, user in ((10, "a"), (20, "a"), (30, "b")):
        process = a_process(pid=5, user=user, started_at=None)
        host.sample(second, a_gpu(processes=[process], memory_used_mib=30_000))
    assert host.came() == [host.time(20)], "the last sample without it"


def test_a_gap_ends_all_runs_and_the_watch_begins_anew():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(GAP, a_gpu())
    assert host.window().free_for == GAP
    host.sample(2 * GAP + 0.1, a_gpu())
    assert host.window() == Window(unused_for=0.0, free_for=0.0)


def test_the_same_sample_once_more_does_not_extend_a_run():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu())
    before = host.watch
    again = summarize(a_snapshot(a_gpu(), time=host.time(10)))
    host.watch = advance(before, again, sampled=10.4, limits=Limits(), longest_gap=GAP)
    assert host.watch is before


def test_samples_of_a_host_without_a_clock_are_not_taken_for_one():
    host = Watched()
    for second, card in ((0, a_gpu()), (10, a_gpu(**USED)), (20, a_gpu())):
        summary = summarize(a_snapshot(card, time=None))
        host.watch = advance(host.watch, summary, sampled=second, limits=Limits(), longest_gap=GAP)
    assert host.window().free_for == 0.0


def test_a_fault_has_a_run_too():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(lost=True, error="lost"))
    host.sample(15, a_gpu(lost=True, error="lost"))
    assert host.window().fault_for == 5.0
    host.sample(20, a_gpu())
    assert host.window().fault_for is None


# What the agent knows goes first


@pytest.mark.parametrize("off_by", [0.0, -900.0, 172_800.0, -WALL])
def test_the_agents_starts_are_taken_by_whatever_clock_it_has(off_by):
    host = Watched(off_by)
    began = {"unused_since": host.time(-3600), "free_since": host.time(-60)}
    host.sample(0, a_gpu(**began))
    host.sample(10, a_gpu(**began))
    window = host.window()
    assert (window.unused_for, window.free_for) == (3610.0, 70.0)
    assert window.observed_for == 10.0


def test_the_agent_sees_a_use_that_fell_between_two_polls():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(free_since=host.time(8), unused_since=host.time(8)))
    window = host.window()
    assert (window.free_for, window.unused_for) == (2.0, 2.0)
    assert window.observed_for == 2.0  # it may also be that the agent itself began anew


def test_a_start_that_trembles_stands_still():
    host = Watched()
    host.sample(0, a_gpu(free_since=host.time(-100)))
    host.sample(10, a_gpu(free_since=host.time(-98.5)))
    assert host.window().free_for == 110.0


def test_what_the_agent_says_against_its_own_reading_does_not_count():
    host = Watched()
    host.sample(0, a_gpu(**USED, unused_since=host.time(-9999), free_since=host.time(-9999)))
    assert host.window() == Window(held_for=0.0, held_at_least=True)


def test_a_start_of_this_very_sample_counts_however_it_was_rounded():
    host = Watched()
    told = {"fault_since": host.time(0.04), "watched_since": host.time(-60)}
    host.sample(0, a_gpu(lost=True, error="lost", **told))
    assert (host.window().fault_for, host.window().fault_at_least) == (0.0, False)


def test_a_start_in_the_future_does_not_count():
    host = Watched()
    host.sample(0, a_gpu(free_since=host.time(50)))
    assert host.window().free_for == 0.0


# Since when it is held


def test_who_is_there_at_the_first_look_is_held_against_nobody_before_it():
    host = Watched(host_clock_off_by=5000.0)
    process = a_process(started_at=host.time(-7200))
    host.sample(0, a_gpu(processes=[process]))
    host.sample(10, a_gpu(processes=[process]))
    window = host.window()
    assert (window.held_for, window.held_at_least) == (10.0, True)
    assert host.came() == [None]  # nobody saw it: its start is the earliest possible


def test_who_is_seen_to_come_came_then_however_old_the_process_is():
    host = Watched(host_clock_off_by=5000.0)
    process = a_process(started_at=host.time(-7200))
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(processes=[process]))
    host.sample(20, a_gpu(processes=[process]))
    window = host.window()
    assert (window.held_for, window.held_at_least) == (10.0, False)
    assert host.came() == [host.time(0)]  # then the GPU was last seen without it


def test_who_began_between_two_samples_came_when_it_began():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(processes=[a_process(started_at=host.time(7))]))
    assert host.came() == [host.time(7)]


def test_who_comes_to_a_gpu_that_somebody_else_leaves_has_not_held_it_before():
    host = Watched()
    theirs = a_process(pid=7, started_at=host.time(-9000))
    host.sample(0, a_gpu())
    for second in (10, 20, 30):
        host.sample(second, a_gpu(processes=[theirs]))
    host.sample(40, a_gpu(processes=[a_process(pid=8, user="bob", started_at=host.time(-8000))]))
    assert (host.window().held_for, host.window().unused_for) == (0.0, 40.0)
    assert host.came() == [host.time(30)]


def test_who_came_first_of_those_that_are_there_counts():
    host = Watched()
    one, other = (a_process(pid=pid, started_at=host.time(-9000)) for pid in (7, 8))
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(processes=[one]))
    host.sample(20, a_gpu(processes=[one, other]))
    assert (host.window().held_for, host.came()) == (10.0, [host.time(0)])


def test_a_list_that_could_not_be_read_shows_nobody_leave_or_come():
    host = Watched()
    process = a_process(started_at=host.time(-9000))
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(processes=None))
    host.sample(20, a_gpu(processes=[process]))
    assert host.came() == [host.time(0)]
    host.sample(30, a_gpu(processes=None))
    host.sample(40, a_gpu(processes=[process]))
    assert (host.came(), host.window().held_for) == ([host.time(0)], 0.0)


def test_a_pid_of_another_process_is_another_process():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(processes=[a_process(pid=7, started_at=host.time(5))]))
    host.sample(28, a_gpu(processes=[a_process(pid=7, started_at=host.time(25))]))
    assert (host.window().held_for, host.came()) == (3.0, [host.time(25)])


def test_after_a_gap_nobody_was_seen_to_come():
    host = Watched()
    process = a_process(started_at=host.time(-9000))
    host.sample(0, a_gpu())
    host.sample(GAP + 1, a_gpu(processes=[process]))
    assert (host.window().held_at_least, host.came()) == (True, [None])


def test_a_clock_that_is_set_moves_who_came_when():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(processes=[a_process(started_at=host.time(-9000))]))
    host.off_by = 3600.0
    host.sample(20, a_gpu(processes=[a_process(started_at=host.time(-9000))]))
    assert host.came() == [host.time(0)]


def test_the_same_sample_read_anew_tells_the_same_of_who_came_when():
    host = Watched()
    process = a_process(started_at=host.time(-9000))
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(processes=[process]))
    before = host.watch
    host.sample(10, a_gpu(processes=[process]))
    assert host.watch is before
    assert host.came() == [host.time(0)]


def test_of_a_host_without_a_clock_ours_says_who_came_when():
    watch = None
    for second, card in ((0, a_gpu()), (10, a_gpu(processes=[a_process(started_at=WALL - 99)]))):
        summary = summarize(a_snapshot(card, time=None))
        watch = advance(
            watch, summary, sampled=second, limits=Limits(), longest_gap=GAP, wall=WALL + second
        )
    assert summary.gpus[0].holders[0].on_gpu_since == WALL


def test_what_the_agent_says_of_who_holds_it_goes_before_what_we_saw():
    host = Watched(host_clock_off_by=-500.0)
    process = a_process(started_at=host.time(-9000))
    told = {"held_since": host.time(-40), "watched_since": host.time(-3600)}
    host.sample(0, a_gpu(processes=[process], **told))
    host.sample(10, a_gpu(processes=[process], **told))
    window = host.window()
    assert (window.held_for, window.held_at_least) == (50.0, False)
    assert host.came() == [None]  # the agent would have told


def test_what_the_agent_found_held_at_its_own_first_look_is_at_least():
    host = Watched()
    told = {"held_since": host.time(-40), "watched_since": host.time(-40)}
    host.sample(0, a_gpu(processes=[a_process()], **told))
    assert (host.window().held_for, host.window().held_at_least) == (40.0, True)


def test_an_agent_that_does_not_tell_who_came_leaves_it_to_us():
    """Its watch is hours old, ours begins: nobody is accused, and nothing of it is exact."""
    host = Watched()
    told = {"unused_since": host.time(-7200), "watched_since": host.time(-7200)}
    process = a_process(started_at=host.time(-25_000))
    host.sample(0, a_gpu(processes=[process], **told))
    window = host.window()
    assert (window.unused_for, window.held_for, window.held_at_least) == (7200.0, 0.0, True)


# Since when it is broken

LOST = {"lost": True, "error": "lost"}


def test_a_fault_at_our_first_look_may_be_older():
    host = Watched()
    host.sample(0, a_gpu(**LOST))
    host.sample(10, a_gpu(**LOST))
    assert (host.window().fault_for, host.window().fault_at_least) == (10.0, True)


def test_a_fault_that_is_seen_to_begin_began_then():
    host = Watched()
    host.sample(0, a_gpu())
    host.sample(10, a_gpu(**LOST))
    assert (host.window().fault_for, host.window().fault_at_least) == (0.0, False)


def test_a_fault_is_as_old_as_the_agent_says():
    host = Watched(host_clock_off_by=900.0)
    told = {"fault_since": host.time(-7200), "watched_since": host.time(-60)}
    host.sample(0, a_gpu(**LOST, **told))
    assert (host.window().fault_for, host.window().fault_at_least) == (7200.0, False)


def test_a_fault_as_old_as_the_agents_watch_may_be_older():
    host = Watched()
    told = {"fault_since": host.time(-60), "watched_since": host.time(-60)}
    host.sample(0, a_gpu(**LOST, **told))
    assert (host.window().fault_for, host.window().fault_at_least) == (60.0, True)


def test_an_agent_that_does_not_tell_since_when_leaves_that_to_us_too():
    host = Watched()
    host.sample(0, a_gpu(**LOST, watched_since=host.time(-7200)))
    assert (host.window().fault_for, host.window().fault_at_least) == (0.0, True)


# Keys


def test_runs_follow_the_uuid_and_not_the_index():
    host = Watched()
    host.sample(0, a_gpu(0, uuid="A"), a_gpu(1, uuid="B", **USED))
    host.sample(10, a_gpu(0, uuid="B", **USED), a_gpu(1, uuid="A"))
    assert host.window("A").free_for == 10.0
    assert host.window("B").free_for is None


def test_a_gpu_without_uuid_goes_by_its_index():
    host = Watched()
    for second in (0, 10):
        host.sample(second, a_gpu(3, uuid=None))
    assert host.window("#3").free_for == 10.0


def test_a_row_that_lost_its_uuid_stands_for_the_gpu_that_had_its_index():
    """A driver that is asked anew for a lost GPU does not even tell its UUID."""
    host = Watched()
    host.sample(0, a_gpu(0), a_gpu(1))
    host.sample(10, a_gpu(0), a_gpu(1, lost=True, error="lost"))
    host.sample(20, a_gpu(0), Gpu(index=1, lost=True, error="lost"))
    assert (host.window("#1").fault_for, host.window("#1").fault_at_least) == (10.0, False)
    host.sample(30, a_gpu(0), a_gpu(1, lost=True, error="lost"))
    assert host.window("GPU-0001").fault_for == 20.0


def test_another_gpu_at_the_index_of_one_is_not_that_one():
    host = Watched()
    host.sample(0, a_gpu(0, uuid="A"))
    host.sample(10, a_gpu(0, uuid="B"))
    assert host.window("B") == Window(unused_for=0.0, free_for=0.0)


def test_gpus_that_are_gone_leave_nothing_behind():
    host = Watched()
    host.sample(0, a_gpu(0), a_gpu(1))
    host.sample(10, a_gpu(0))
    assert host.watch is not None
    assert list(host.watch.runs) == ["GPU-0000"]
    assert host.window("GPU-0001") == Window()


def test_a_gpu_that_comes_new_is_watched_from_then():
    host = Watched()
    host.sample(0, a_gpu(0))
    host.sample(10, a_gpu(0), a_gpu(1))
    assert host.window("GPU-0001").observed_for == 0.0


def test_mig_instances_have_runs_of_their_own():
    host = Watched()
    empty = MigInstance(index=0, memory_used_mib=3, memory_reserved_mib=3, processes=[])
    held = msgspec.structs.replace(empty, index=1, processes=[a_process()])
    card = a_gpu(mig_mode=True, mig=[empty, held], utilization_percent=None)
    host.sample(0, card)
    host.sample(10, card)
    short = summarize(a_snapshot(card)).gpus[0]
    free, busy = (host.window(mig_key(short, part)) for part in short.mig)
    assert (free.free_for, free.unused_for) == (10.0, None)
    assert (busy.held_for, busy.free_for) == (10.0, None)
    assert host.window(gpu_key(short)).held_for == 10.0


def test_what_the_agent_has_watched_longer_than_we_have_is_known_exactly():
    host = Watched(host_clock_off_by=-500.0)
    told = {"free_since": host.time(-60), "watched_since": host.time(-3600)}
    host.sample(0, a_gpu(**told))
    window = host.window()
    assert (window.free_for, window.observed_for) == (60.0, 3600.0)


def test_a_run_as_old_as_the_agents_watch_may_be_older():
    host = Watched()
    host.sample(0, a_gpu())
    told = {"free_since": host.time(2), "watched_since": host.time(2)}
    host.sample(5, a_gpu(**told))
    window = host.window()
    assert window.free_for == window.observed_for == 3.0
