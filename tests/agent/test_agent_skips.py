"""When a GPU that made a sampler fail is tried again."""

from __future__ import annotations

from gpumon.agent.skips import Skips


def blame(skips: Skips, index: int, now: float, error: str = "it hung") -> None:
    skips.blame(index, f"GPU-{index}", "H100", error, now)


def test_the_pause_doubles_up_to_the_longest():
    skips = Skips(60.0, 1800.0)
    now, pauses = 0.0, []
    for _ in range(7):
        blame(skips, 2, now)
        [gpu] = skips.all()
        pauses.append(gpu.retry_at - now)
        now = gpu.retry_at
    assert pauses == [60, 120, 240, 480, 960, 1800, 1800]


def test_a_gpu_is_due_when_its_pause_is_over_and_the_longest_waiting_one_first():
    skips = Skips(60.0, 1800.0)
    blame(skips, 5, 10.0)
    blame(skips, 2, 0.0)
    assert skips.due(59.9) is None
    assert skips.due(60.0).index == 2
    assert skips.due(100.0).index == 2


def test_the_first_sentence_and_name_are_kept():
    skips = Skips(60.0, 1800.0)
    blame(skips, 2, 0.0, "it hung at 14:02:11")
    skips.blame(2, None, None, "it hung at 14:03:11", 60.0)
    [gpu] = skips.all()
    assert (gpu.uuid, gpu.error) == ("GPU-2", "it hung at 14:02:11")


def test_when_one_has_healed_the_others_are_tried_at_once():
    skips = Skips(60.0, 1800.0)
    for index in (1, 2, 3):
        blame(skips, index, 0.0)
    skips.heal(2, 60.0)
    assert [gpu.index for gpu in skips.all()] == [1, 3]
    assert skips.due(60.0).index in (1, 3)


def test_a_gpu_that_fails_soon_after_it_healed_waits_longer_than_before():
    skips = Skips(60.0, 1800.0)
    blame(skips, 2, 0.0)
    skips.heal(2, 60.0)
    assert skips.all() == ()
    blame(skips, 2, 100.0)
    assert skips.all()[0].retry_at == 100.0 + 120.0


def test_a_gpu_that_was_well_for_long_begins_anew():
    skips = Skips(60.0, 1800.0)
    blame(skips, 2, 0.0)
    blame(skips, 2, 60.0)
    skips.heal(2, 200.0)
    blame(skips, 2, 2001.0)
    assert skips.all()[0].retry_at == 2061.0
