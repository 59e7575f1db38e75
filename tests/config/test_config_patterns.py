"""Which regular expressions are taken: those that no name keeps busy."""

from __future__ import annotations

import re
import time

import pytest

from gpumon.config.patterns import NAME_LENGTH, is_quick

HOSTILE_NAMES = [
    (word * NAME_LENGTH)[: NAME_LENGTH - 1] + end
    for word in ("a", "ab", "a-", "1", "a1-", "_", "xa")
    for end in ("!", "a", "-")
]


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?P<user>[a-z]+)-",
        "^gpu-(?P<user>.*)$",
        "(?P<user>[a-z]+)",
        "^(?P<user>[a-z]+)-(.*)-(.*)$",
        "^.*-(?P<user>\\w+)-.*$",
        "^(?P<user>[a-z]{1,32})_",
        "^(?P<user>(?:[a-z]+\\.)?[a-z]+)-",
        "^(?:job|run)-(?P<user>[a-z0-9]+)-[0-9]+$",
        "(?i)^(?P<user>[a-z]+)-",
        "^(?P<user>[a-z]*)[a-z]*[a-z]*[a-z]*$",
        "(?P<user>a*)a*a*b",
    ],
)
def test_what_people_write_is_taken_and_no_name_keeps_it_busy(pattern):
    assert is_quick(pattern)
    for name in HOSTILE_NAMES:
        begin = time.perf_counter()
        re.search(pattern, name)
        assert time.perf_counter() - begin < 1.0  # some hundredths on a quiet machine


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?P<user>([a-z]+)+)-$",
        "^(?P<user>([a-z]+)*)-$",
        "^(?P<user>(?:a|a)*)$",
        "^(?P<user>(?:aa?)+)b",
        "^(?P<user>(?:[a-z]+-)*)x",
        "^(?P<user>(?:a|ab){2,40})$",
        "^(?P<user>x)(?=(a+)+b)",
        "^(?P<user>x)?(?(1)(a+)+b|c)",
        "^(?P<user>a*)a*a*a*a*b",
        "(?P<user>a*)a*a*a*b",
        "^(?:(?:(?P<user>a*)){3}){3}b",
    ],
)
def test_what_a_name_could_keep_busy_is_not_taken(pattern):
    re.compile(pattern)
    assert not is_quick(pattern)
