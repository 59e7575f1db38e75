"""Counts of values that can't be, for `health()`."""

from __future__ import annotations

from gpumon.agent.odd import MOST_FIELDS, OddValues, odd_fields
from gpumon.model import Gpu, HostSnapshot


def host(*unknown):
    gpus = [Gpu(index=i, unknown=fields) for i, fields in enumerate(unknown)]
    return odd_fields(HostSnapshot(gpus=gpus))


def test_values_out_of_range_are_counted_by_field_and_other_reasons_are_not():
    odd = OddValues()
    assert odd.counts() == {}
    for _ in range(3):
        odd.add(
            host(
                {"temperature_celsius": "out of range (found 510)"},
                {
                    "temperature_celsius": "out of range (found 255)",
                    "memory_used_mib": "out of range (found 9 bytes)",
                    "fan_speed_percent": "not supported",
                },
            )
        )
    odd.add(host({}))
    assert odd.counts() == {"temperature_celsius": 6, "memory_used_mib": 3}


def test_fields_that_do_not_exist_can_not_fill_the_memory():
    odd = OddValues()
    odd.add(host({f"field{number}": "out of range (found 1)" for number in range(1000)}))
    odd.add(host({"field0": "out of range (found 1)"}))
    assert len(odd.counts()) == MOST_FIELDS
    assert odd.counts()["field0"] == 2
