"""Eight cards must not become seven without a word."""

from __future__ import annotations

from cluster_tools import WALL, a_gpu, a_snapshot

from gpumon.cluster.missing import Missing, still_missing, without_a_row
from gpumon.model import Gpu
from gpumon.summary import HostSummary, summarize


def host(*gpus: Gpu) -> HostSummary:
    return summarize(a_snapshot(*gpus))


def gpus(*uuids: str | None) -> HostSummary:
    return host(*(a_gpu(index, uuid=uuid) for index, uuid in enumerate(uuids)))


def uuids(missing: tuple[Missing, ...]) -> list[str | None]:
    return [entry.gpu.uuid for entry in missing]


def test_nothing_is_missing_as_long_as_all_are_listed_in_whatever_order():
    assert still_missing((), gpus("A", "B"), gpus("B", "A"), WALL) == ()


def test_a_gpu_that_is_not_listed_any_more_is_missing_since_then():
    first = still_missing((), gpus("A", "B"), gpus("A"), WALL)
    assert uuids(first) == ["B"]
    second = still_missing(first, gpus("A"), gpus("A"), WALL + 60)
    assert second == first
    assert second[0].since == WALL


def test_a_gpu_that_comes_back_is_not_missing_any_more():
    first = still_missing((), gpus("A", "B"), gpus("A"), WALL)
    assert still_missing(first, gpus("A"), gpus("A", "B"), WALL) == ()


def test_the_indices_may_move_when_a_gpu_goes():
    assert uuids(still_missing((), gpus("A", "B", "C"), gpus("A", "C"), WALL)) == ["B"]


def test_a_missing_gpu_that_its_agent_forgets_is_not_missing_here_either():
    told = host(a_gpu(0, uuid="A"), Gpu(index=1, uuid="B", lost=True, missing_since=WALL - 60))
    assert still_missing((), gpus("A", "B"), told, WALL) == ()
    assert still_missing((), told, gpus("A"), WALL) == ()
    assert uuids(still_missing((), gpus("A", "B"), gpus("A"), WALL)) == ["B"]


def test_a_card_that_was_replaced_is_not_missing():
    assert still_missing((), gpus("A", "B"), gpus("A", "NEW"), WALL) == ()


def test_a_card_that_comes_after_a_loss_takes_the_place_of_the_lost_one():
    lost = still_missing((), gpus("A", "B"), gpus("A"), WALL)
    assert still_missing(lost, gpus("A"), gpus("A", "NEW"), WALL) == ()


def test_a_row_that_can_not_be_read_stands_for_the_gpu_that_had_its_index():
    unread = host(a_gpu(0, uuid="A"), a_gpu(1, uuid=None, error="Unknown Error"))
    missing = still_missing((), gpus("A", "B"), unread, WALL)
    assert without_a_row(missing, unread) == []
    # When even that row goes, the GPU is not forgotten.
    later = still_missing(missing, unread, gpus("A"), WALL + 9)
    assert uuids(tuple(without_a_row(later, gpus("A")))) == ["B"]


def test_gpus_without_uuid_are_not_remembered():
    assert still_missing((), gpus(None, None), gpus(None), WALL) == ()


def test_without_a_driver_all_are_missing():
    missing = still_missing((), gpus("A", "B"), host(), WALL)
    assert uuids(missing) == ["A", "B"]
    assert without_a_row(missing, host()) == list(missing)
