"""The text format: escaping, absent values, no sample twice; read by Prometheus' own tool."""

from __future__ import annotations

import math

import pytest
from metrics.promtool import complaints

from gpumon.metrics.exposition import (
    Exposition,
    Metric,
    label_text,
    mhz,
    mib,
    share,
    with_labels,
)

HEAT = Metric("gpumon_heat_celsius", "How hot.\nIn \\ degrees.")
COUNT = Metric("gpumon_things_total", "Things.", kind="counter")


def test_a_family_is_in_one_piece_however_its_samples_came():
    out = Exposition()
    out.add(HEAT, label_text(gpu=0), 31)
    out.add(COUNT, "", 7)
    out.add(HEAT, label_text(gpu=1), 45.5)
    assert out.text().decode() == (
        "# HELP gpumon_heat_celsius How hot.\\nIn \\\\ degrees.\n"
        "# TYPE gpumon_heat_celsius gauge\n"
        'gpumon_heat_celsius{gpu="0"} 31\n'
        'gpumon_heat_celsius{gpu="1"} 45.5\n'
        "# HELP gpumon_things_total Things.\n"
        "# TYPE gpumon_things_total counter\n"
        "gpumon_things_total 7\n"
    )


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_known_is_not_there_and_zero_is(unknown):
    out = Exposition()
    out.add(HEAT, label_text(gpu=0), unknown)
    assert out.text() == b""
    out.add(HEAT, label_text(gpu=1), 0)
    out.add(HEAT, label_text(gpu=2), False)
    assert out.text().decode().splitlines()[2:] == [
        'gpumon_heat_celsius{gpu="1"} 0',
        'gpumon_heat_celsius{gpu="2"} 0',
    ]


def test_a_second_sample_with_the_same_labels_is_dropped():
    out = Exposition()
    out.add(HEAT, label_text(gpu=0), 1)
    out.add(HEAT, label_text(gpu=0), 2)
    assert out.text().decode().splitlines()[2:] == ['gpumon_heat_celsius{gpu="0"} 1']


def test_labels_without_a_value_are_left_out_and_others_are_escaped():
    assert label_text(a=None, b="", c=0) == '{c="0"}'
    assert label_text(a=None) == ""
    assert label_text(a='say "hi"\\\n') == '{a="say \\"hi\\"\\\\\\n"}'
    assert with_labels('{a="1"}', b=2) == '{a="1",b="2"}'
    assert with_labels('{a="1"}', b=None) == '{a="1"}'
    assert with_labels("", b=2) == '{b="2"}'


def test_percentages_mib_and_mhz_become_base_units_and_unknown_stays_unknown():
    assert (share(57), share(12.3), share(0), share(None)) == (0.57, 0.123, 0.0, None)
    assert (mib(2), mib(0), mib(None)) == (2 * 1024**2, 0, None)
    assert (mhz(1980), mhz(None)) == (1_980_000_000, None)


@pytest.mark.parametrize("name", ['"', "\\", "\\n", "a\nb", "{}", "ü 🙂", "\ud800", "=,"])
def test_prometheus_reads_any_name_in_a_label(name):
    out = Exposition()
    out.add(HEAT, label_text(user=name), 1)
    assert complaints(out.text()) == ""
