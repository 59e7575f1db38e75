"""Eight cards must not become seven without a word, and nothing else may look like that."""

from __future__ import annotations

from gpumon.collect.health.known import MOST_KNOWN, KnownGpus
from gpumon.model import Gpu, MigInstance
from gpumon.units import clock

T = 1_764_000_000.0


def row(index, uuid, bus=None, **fields):
    bus = bus or f"00000000:{ord(uuid[0]) if uuid else index:02X}:00.0"
    return Gpu(index=index, uuid=uuid, name="H100", pci_bus_id=bus, **fields)


def rows(*uuids):
    return [row(index, uuid) for index, uuid in enumerate(uuids)]


def learn(known, listed, now=T, count=None):
    known.update(len(listed) if count is None else count, listed, now)
    return known.missing(listed, now)


def known_of(*uuids):
    known = KnownGpus()
    assert learn(known, rows(*uuids)) == []
    return known


def names(found):
    return [(gpu.index, gpu.uuid) for gpu in found]


def test_a_gpu_that_is_not_listed_any_more_gets_a_row():
    known = known_of("A", "B", "C")
    (gpu,) = learn(known, rows("A", "B"), T + 60)
    assert (gpu.index, gpu.uuid, gpu.name, gpu.lost) == (2, "C", "H100", True)
    assert gpu.missing_since == T + 60
    assert gpu.error == f"missing since {clock(T + 60, T + 60)}: the driver counts 2 GPUs"
    assert learn(known, rows("A"), T + 90)[1].error.endswith("the driver counts 1 GPU")
    assert learn(known, rows("A"), T + 90)[1].missing_since == T + 60


def test_it_stands_at_its_old_index_or_after_all_others():
    assert names(learn(known_of("A", "B", "C"), rows("A", "B"))) == [(2, "C")]
    assert names(learn(known_of("A", "B", "C"), rows("B", "C"))) == [(2, "A")]
    known = known_of("A", "B", "C", "D")
    assert names(learn(known, rows("B", "D"))) == [(2, "C"), (3, "A")]


def test_one_that_comes_back_is_missing_no_more():
    known = known_of("A", "B")
    assert learn(known, rows("A")) != []
    assert learn(known, rows("A", "B")) == []
    (gpu,) = learn(known, rows("A"), T + 500)
    assert gpu.missing_since == T + 500


def test_another_order_of_the_indices_is_nobodys_loss():
    known = known_of("A", "B", "C")
    assert learn(known, rows("C", "A", "B")) == []


def test_new_places_on_the_bus_are_nobodys_loss():
    known = known_of("A", "B")
    moved = [row(0, "A", "00000000:81:00.0"), row(1, "B", "00000000:82:00.0")]
    assert learn(known, moved) == []


def test_another_mig_layout_is_nobodys_loss():
    known = known_of("A", "B")
    cut = row(0, "A", mig_mode=True, mig=[MigInstance(index=0, uuid="MIG-1")])
    assert learn(known, [cut, row(1, "B")]) == []
    assert learn(known, rows("A", "B")) == []


def test_a_driver_that_can_not_be_asked_loses_nobody():
    known = known_of("A", "B")
    known.update(None, [], T)
    assert known.missing([], T) == []


def test_a_row_without_a_uuid_may_be_the_one_that_is_not_listed():
    known = known_of("A", "B")
    assert learn(known, [row(0, "A"), row(1, None)]) == []
    assert names(learn(known, rows("A"))) == [(1, "B")]
    # What was missing before stays so.
    assert names(learn(known, [row(0, None)], T + 9)) == [(1, "B")]


def test_that_more_are_missing_than_rows_are_nameless_is_told():
    known = known_of("A", "B", "C")
    assert known.update(2, [row(0, "A"), row(1, None)], T) == 1
    assert known.update(3, [row(0, "A"), row(1, None), row(2, None)], T) == 0
    assert known.update(2, rows("A", "B"), T) == 0  # C has its row now


def test_a_new_card_in_its_place_says_that_it_was_replaced():
    known = known_of("A", "B")
    assert learn(known, rows("A")) != []
    assert learn(known, [row(0, "A"), row(1, "N", "00000000:42:00.0")]) == []  # B's address


def test_a_new_card_in_another_place_does_not():
    known = known_of("A", "B")
    assert names(learn(known, [row(0, "A"), row(1, "N")])) == [(2, "B")]


def test_a_known_card_in_its_place_does_not_either():
    known = known_of("A", "B", "C")
    moved = [row(0, "A"), row(1, "C", "00000000:42:00.0")]
    assert names(learn(known, moved)) == [(2, "B")]


def test_the_ones_that_are_missing_can_be_forgotten():
    known = known_of("A", "B")
    learn(known, rows("A"))
    known.forget_missing()
    assert learn(known, rows("A")) == []
    assert learn(known, []) != []


def test_an_address_names_the_card_that_is_there_now():
    known = known_of("A", "B")
    learn(known, [row(0, "A", "00000000:42:00.0")])  # where B was
    assert known.places() == {(0, 0x42, 0): "A"}
    learn(known, rows("B"))
    assert known.places() == {(0, 0x42, 0): "B"}


def test_the_memory_is_bounded():
    known = KnownGpus()
    for day in range(2 * MOST_KNOWN):
        learn(known, [row(0, f"A{day}", f"0000{day:04X}:01:00.0")], T + day)
    assert len(known.gpus) == MOST_KNOWN
    assert f"A{2 * MOST_KNOWN - 1}" in known.gpus
    assert "A0" not in known.gpus
