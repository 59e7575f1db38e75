"""What is said once in a while."""

from __future__ import annotations

from gpumon.http.seldom import Seldom


def test_the_same_thing_is_said_once_until_a_while_has_passed():
    now = [0.0]
    seldom = Seldom(seconds=10.0, clock=lambda: now[0])
    assert [seldom.allows("a"), seldom.allows("a"), seldom.allows("b")] == [True, False, True]
    now[0] = 9.9
    assert not seldom.allows("a")
    now[0] = 10.0
    assert seldom.allows("a")


def test_its_memory_is_bounded_and_forgets_the_oldest_first():
    seldom = Seldom(most=3, clock=lambda: 0.0)
    assert all(seldom.allows(n) for n in range(4))
    assert not seldom.allows(3)
    assert seldom.allows(0)
