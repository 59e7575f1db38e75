"""The doorman: wrong tokens are limited per address, and the good server keeps its way in."""

from __future__ import annotations

import logging

import pytest

from gpumon.http.auth import Tokens
from gpumon.http.doorman import FORGOTTEN_PER_SECOND, MOST_ADDRESSES, TRIES, Doorman, Refusal

RIGHT, WRONG = "Bearer right", "Bearer wrong"
SERVER, OTHER = "192.0.2.1", "192.0.2.2"


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def doorman(clock: Clock) -> Doorman:
    return Doorman("agent", Tokens(["right", "old"]), clock)


def guess(doorman: Doorman, address: str, times: int) -> list[Refusal | None]:
    return [doorman.refusal(WRONG, address) for _ in range(times)]


def test_every_token_opens_and_anything_else_does_not(doorman):
    assert doorman.refusal(RIGHT, SERVER) is None
    assert doorman.refusal("Bearer old", SERVER) is None
    assert doorman.refusal(WRONG, SERVER) == Refusal()
    assert doorman.refusal(None, SERVER) == Refusal(showed_token=False)


def test_who_guesses_is_shut_out_and_a_right_guess_does_not_help_then(doorman, clock):
    assert guess(doorman, OTHER, TRIES) == [Refusal()] * TRIES
    refused = doorman.refusal(RIGHT, OTHER)
    assert refused is not None
    assert refused.retry_after is not None
    clock.seconds += refused.retry_after
    assert doorman.refusal(RIGHT, OTHER) is None


def test_guesses_are_limited_over_time_however_patient_somebody_is(doorman, clock):
    tried = 0
    for _ in range(3600):
        clock.seconds += 1.0
        for _ in range(10):
            refused = doorman.refusal(WRONG, OTHER)
            tried += refused is not None and refused.retry_after is None
    assert tried <= TRIES + 3600 * FORGOTTEN_PER_SECOND + 1


def test_an_address_that_has_shown_a_right_token_is_never_shut_out(doorman):
    assert doorman.refusal(RIGHT, SERVER) is None
    guess(doorman, SERVER, 10 * TRIES)
    assert doorman.refusal(RIGHT, SERVER) is None


def test_guesses_from_one_address_do_not_touch_another(doorman):
    guess(doorman, OTHER, 10 * TRIES)
    assert doorman.refusal(RIGHT, SERVER) is None


def test_a_server_with_an_old_token_gets_in_as_soon_as_it_has_the_right_one(doorman, clock):
    for _ in range(500):
        clock.seconds += 5.0  # its poll interval
        assert doorman.refusal(WRONG, SERVER) == Refusal()
    assert doorman.refusal(RIGHT, SERVER) is None


def test_asking_without_a_token_is_no_guess(doorman):
    for _ in range(10 * TRIES):
        assert doorman.refusal(None, OTHER) == Refusal(showed_token=False)
    assert doorman.refusal(RIGHT, OTHER) is None


def test_addresses_of_one_ipv6_network_count_together_and_ipv4_one_by_one(doorman):
    for n in range(TRIES):
        assert doorman.refusal(WRONG, f"2001:db8::{n:x}") == Refusal()
    assert doorman.refusal(WRONG, "2001:db8::ffff") != Refusal()
    assert doorman.refusal(WRONG, "2001:db8:0:1::1") == Refusal()
    assert doorman.refusal(WRONG, "fe80::1%eth0") == Refusal()
    assert doorman.refusal(WRONG, "no address") == Refusal()


def test_the_memory_of_addresses_is_bounded(doorman):
    for n in range(MOST_ADDRESSES + 500):
        doorman.refusal(WRONG, f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}")
    assert len(doorman._callers) == MOST_ADDRESSES


def test_a_refusal_is_one_line_a_while_with_the_address_and_without_the_token(
    doorman, clock, caplog
):
    caplog.set_level(logging.INFO)
    for _ in range(20):
        doorman.refusal("Bearer a-secret-that-was-mistyped", SERVER)
    assert [record.getMessage() for record in caplog.records] == [
        f"agent: {SERVER} was refused: wrong token"
    ]
    clock.seconds += 601
    doorman.refusal("Bearer a-secret-that-was-mistyped", SERVER)
    doorman.refusal(None, SERVER)
    assert len(caplog.records) == 3
    assert "secret" not in caplog.text
