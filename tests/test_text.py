"""clean(): whatever comes in, one harmless line comes out."""

from __future__ import annotations

import unicodedata
import xmlrpc.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.text import MOST_MARKS, REPLACEMENT, clean

CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
BLANKS = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x1F, 0x85, 0xA0}

any_text = st.text(st.characters(exclude_categories=()), max_size=400)
"""Every code point, lone surrogates too."""


def survives_xml_rpc(text: str) -> bool:
    """Say whether both a stock server and a stock client can handle the text."""
    answer = xmlrpc.client.dumps((text,), methodresponse=True).encode("utf-8")
    return xmlrpc.client.loads(answer)[0] == (text,)


@pytest.mark.parametrize("code", CONTROLS)
def test_no_control_character_gets_through(code: int) -> None:
    expected = "a b" if code in BLANKS else f"a{REPLACEMENT}b"
    assert clean(f"a{chr(code)}b") == expected


@pytest.mark.parametrize("code", [0xD800, 0xDBFF, 0xDC00, 0xDC80, 0xDFFF])
def test_a_lone_surrogate_is_replaced(code: int) -> None:
    cleaned = clean(f"a{chr(code)}b")
    assert cleaned == f"a{REPLACEMENT}b"
    cleaned.encode("utf-8")


@pytest.mark.parametrize(
    "letter",
    [
        "\u061c",  # Arabic letter mark
        "\u200b",  # zero width space
        "\u200d",  # zero width joiner
        "\u200e",  # left-to-right mark
        "\u200f",  # right-to-left mark
        "\u202a",
        "\u202e",  # right-to-left override
        "\u2060",  # word joiner
        "\u2066",
        "\u2069",  # isolates
        "\u00ad",  # soft hyphen
        "\u034f",  # combining grapheme joiner
        "\u115f",  # Hangul filler: printable, and invisible
        "\u3164",
        "\uffa0",
        "\u2800",  # empty Braille cell
        "\u180e",
        "\ufe0f",  # variation selector
        "\U000e0100",
        "\U000e0041",  # tag letter
        "\ue000",  # private use
        "\U000f0000",
        "\ufdd0",  # no character
        "\ufffe",
        "\uffff",
        "\U0010ffff",
        "\ufeff",  # byte order mark
        "\ufff9",  # interlinear annotation
        "\u0378",  # not assigned
    ],
)
def test_nothing_invisible_or_reordering_gets_through(letter: str) -> None:
    assert clean(f"bob{letter}x") == f"bob{REPLACEMENT}x"


@pytest.mark.parametrize(
    "letter", ["\u2028", "\u2029", "\u3000", "\u2003", "\u00a0", "\r\n", "\t\t"]
)
def test_separators_and_wide_blanks_become_one_blank(letter: str) -> None:
    assert clean(f"a {letter} b{letter}") == "a b"


def test_an_escape_sequence_does_not_reach_the_terminal() -> None:
    assert clean("\x1b]0;owned\x07\x1b[31mred\x9b2J") == (
        f"{REPLACEMENT}]0;owned{REPLACEMENT}{REPLACEMENT}[31mred{REPLACEMENT}2J"
    )


def test_ordinary_text_of_the_world_stays_as_it_is() -> None:
    for text in ("python train.py", "Ångström", "漢字", "αβγ", "cafe\u0301", "ไม่รู้", "rocket 🚀"):
        assert clean(text) == text


def test_a_flood_of_accents_is_stopped() -> None:
    flood = "e" + "\u0301" * 200
    assert clean(flood, 1000) == "e" + "\u0301" * MOST_MARKS + REPLACEMENT * (200 - MOST_MARKS)


def test_an_accent_does_not_sit_on_what_stands_before_the_text() -> None:
    assert clean("\u0301alice") == f"{REPLACEMENT}alice"


def test_none_and_nothing_are_an_empty_text() -> None:
    assert clean(None) == clean("") == clean(b"") == clean(" \t\n") == ""


def test_bytes_are_utf8_and_bad_ones_are_replaced() -> None:
    assert clean("naïve".encode()) == "naïve"
    assert clean(b"a\xff\xfeb") == f"a{REPLACEMENT}{REPLACEMENT}b"
    assert clean(b"python\0train.py\0") == f"python{REPLACEMENT}train.py{REPLACEMENT}"


def test_text_that_was_cut_says_so() -> None:
    assert clean("abcdef", 6) == "abcdef"
    assert clean("abcdef", 5) == "abcd…"
    assert clean(b"abcdef", 5) == "abcd…"
    assert clean("漢" * 9, 3) == clean(("漢" * 9).encode(), 3) == "漢漢…"
    assert clean("abc", 1) == "…"
    assert clean("abc", 0) == clean("abc", -3) == ""


@pytest.mark.parametrize("value", [" " * 100 + "secret", b" " * 100 + b"secret"])
def test_what_lies_beyond_a_flood_of_blanks_is_cut_and_said_to_be(value: str | bytes) -> None:
    assert clean(value, 5) == "…"


def test_megabytes_are_not_worked_through() -> None:
    assert len(clean("\x1b" * 50_000_000, 64)) == 64
    assert len(clean(b"\xff" * 50_000_000, 64)) == 64


def check(cleaned: str, limit: int) -> None:
    assert len(cleaned) <= limit
    assert cleaned.isprintable()
    assert cleaned == cleaned.strip()
    assert "  " not in cleaned
    cleaned.encode("utf-8")
    assert survives_xml_rpc(cleaned)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") for c in cleaned)


@given(any_text, st.integers(min_value=0, max_value=300))
def test_any_text_becomes_one_harmless_line(text: str, limit: int) -> None:
    cleaned = clean(text, limit)
    check(cleaned, limit)
    assert clean(cleaned, limit) == cleaned


@given(st.binary(max_size=400), st.integers(min_value=0, max_value=300))
def test_any_bytes_become_one_harmless_line(data: bytes, limit: int) -> None:
    check(clean(data, limit), limit)


def test_every_code_point_comes_out_printable_and_survives_xml_rpc() -> None:
    for start in range(0, 0x110000, 0x1000):
        cleaned = "".join(clean(f"a{chr(code)}b") for code in range(start, start + 0x1000))
        assert cleaned.isprintable()
        assert survives_xml_rpc(cleaned)
