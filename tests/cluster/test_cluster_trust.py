"""Another machine's JSON: its text is cleaned, its numbers and lists bounded, the rest believed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from cluster_tools import a_gpu, a_process, a_snapshot
from hypothesis import given
from hypothesis import strategies as st

from gpumon.cluster.sources.trust import (
    LONGEST_TEXT,
    MOST_HOLDERS,
    MOST_INSTANCES,
    TooNew,
    foreign_snapshot,
    foreign_summary,
)
from gpumon.http.xmlrpc import json_text
from gpumon.model import MigInstance, encode
from gpumon.summary import summarize

SNAPSHOT = a_snapshot(a_gpu(0, processes=[a_process(command='python -c "x & y < z" \\')]))


def summary_of(gpu: dict[str, Any]) -> Any:
    return foreign_summary(json.dumps({"gpus": [{"index": 0, **gpu}]}).encode())


def test_a_clean_reading_is_decoded_as_it_is_without_a_second_look(monkeypatch):
    monkeypatch.setattr(msgspec, "convert", None)
    assert foreign_snapshot(json_text(encode(SNAPSHOT))) == SNAPSHOT
    assert foreign_summary(json_text(encode(summarize(SNAPSHOT)))) == summarize(SNAPSHOT)


def test_names_in_other_scripts_survive():
    snapshot = a_snapshot(a_gpu(0, processes=[a_process(user="zoë", program="обучение")]))
    assert foreign_snapshot(encode(snapshot)) == snapshot


@pytest.mark.parametrize("raw", ["\x1b[2J", "a\nb", "\x00", "\u202e", "\u2028", "\x9b"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_characters_that_act_on_a_terminal_do_not_get_in(raw, ascii_only):
    data = json.dumps({"hostname": f"x{raw}y"}, ensure_ascii=ascii_only)
    name = foreign_summary(data.encode()).hostname
    assert raw not in name
    assert name.isprintable()


def test_a_backslash_that_is_only_a_backslash_is_kept():
    assert foreign_summary(rb'{"hostname": "a\\nb"}').hostname == r"a\nb"
    assert foreign_summary(rb'{"hostname": "a\\\u001b"}').hostname == "a\\\ufffd"


def test_long_texts_are_cut():
    assert len(foreign_summary(json.dumps({"hostname": "x" * 10_000}).encode()).hostname) == (
        LONGEST_TEXT
    )


@given(
    st.integers(0, 3 * LONGEST_TEXT),
    st.integers(LONGEST_TEXT - 3, LONGEST_TEXT + 3),
    st.integers(0, 3 * LONGEST_TEXT),
)
def test_a_text_is_cut_wherever_it_stands(before, length, after):
    entries = {"hostname": "x" * length, "driver_version": "7"}
    data = json.dumps({"a": ["y"] * (before // 5), **entries, "z": ["y"] * (after // 5)})
    found = foreign_summary(data.encode())
    assert len(found.hostname) == min(length, LONGEST_TEXT)
    assert found.driver_version == "7"


@given(st.text(max_size=50))
def test_whatever_a_name_is_it_comes_out_printable(name):
    found = foreign_summary(json.dumps({"hostname": name}).encode()).hostname
    assert found.isprintable()
    if name.isascii() and name.isprintable() and name == " ".join(name.split()):
        assert found == name


def test_numbers_that_nothing_can_hold_are_unknown():
    assert summary_of({"memory_used_mib": 10**400}).gpus[0].memory_used_mib is None
    assert summary_of({"memory_used_mib": 2**63}).gpus[0].memory_used_mib is None
    assert summary_of({"memory_used_mib": 2**63 - 1}).gpus[0].memory_used_mib == 2**63 - 1


@pytest.mark.parametrize("time", [1e300, -1e300, 1e11])
def test_times_that_no_calendar_holds_are_unknown(time):
    found = summary_of(
        {
            "unused_since": time,
            "free_since": time,
            "holders": [{"started_at": time}],
            "mig": [{"index": 0, "free_since": time, "holders": [{"started_at": time}]}],
        }
    ).gpus[0]
    assert (found.unused_since, found.free_since) == (None, None)
    assert found.holders[0].started_at is None
    assert found.mig[0].free_since is None
    assert found.mig[0].holders[0].started_at is None
    assert foreign_summary(b'{"time": %r}' % time).time is None


def test_times_of_hosts_with_wrong_clocks_are_believed():
    assert foreign_summary(b'{"time": 0.0}').time == 0.0
    assert summary_of({"holders": [{"started_at": -5.0}]}).gpus[0].holders[0].started_at == -5.0


@pytest.mark.parametrize(
    "data",
    [
        {"gpus": [{"index": i} for i in range(65)]},
        {"gpus": [{"index": 0, "mig": [{"index": 0}] * (MOST_INSTANCES + 1)}]},
        {"gpus": [{"index": 0, "holders": [{}] * (MOST_HOLDERS + 1)}]},
        {"errors": [""] * 101},
    ],
)
def test_lists_beyond_reason_are_refused(data):
    with pytest.raises(ValueError, match="expected at most"):
        foreign_summary(json.dumps(data).encode())


def test_a_host_with_sixteen_gpus_full_of_instances_is_not_beyond_reason():
    parts = [MigInstance(index=i, processes=[a_process()]) for i in range(7)]
    crowd = [a_process(pid=i, user=f"u{i}") for i in range(500)]
    snapshot = a_snapshot(*(a_gpu(i, mig=parts, processes=crowd) for i in range(16)))
    assert len(foreign_summary(encode(summarize(snapshot))).gpus) == 16


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"gpus": 5}', "Expected `array`, got `int`"),
        (b"{", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b'{"gpus": ' + b"[" * 100_000, "recursion"),
        (b'{"hostname": "\\ud800"}', "truncated|malformed"),
        (b'{"sample_age_seconds": NaN}', "malformed"),
        (b'{"sample_age_seconds": 1e999}', "out of range"),
    ],
)
def test_what_can_not_be_read_says_what_was_expected(data, words):
    with pytest.raises(ValueError, match=words) as error:
        foreign_summary(data)
    assert len(str(error.value)) <= 200
    with pytest.raises(ValueError, match=words):
        foreign_snapshot(data)


def test_an_unreadable_summary_of_another_schema_is_told_apart():
    with pytest.raises(TooNew) as error:
        foreign_summary(b'{"schema": 7, "gpus": "elsewhere"}')
    assert error.value.schema == 7
