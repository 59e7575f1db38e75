"""Which person is behind a container of nobody in particular: the rules of `agent.owner_rules`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gpumon.collect.accounts import NAME_LENGTH
from gpumon.collect.owners.containers import Container
from gpumon.collect.owners.runtime import Facts
from gpumon.config import OwnerRule
from gpumon.config.patterns import NAME_LENGTH as NAME_PATTERN_LENGTH
from gpumon.text import clean


class Evidence(msgspec.Struct, frozen=True):
    """What the rules go by. None: it could not be read, which is not the same as empty."""

    container: Container
    environment: Mapping[str, str] | None
    homes: frozenset[str] | None


class Person(msgspec.Struct, frozen=True):
    """The outcome. `by` says how it was found out, in the words of the model's `user_by`."""

    name: str
    by: str


class Undecided(Exception):
    """A rule could not be asked: what a later one says might be wrong."""


def person(
    rules: Sequence[OwnerRule],
    evidence: Evidence,
    facts: Callable[[Container], tuple[Facts | None, bool]],
    exists: Callable[[str], bool | None],
) -> Person | None:
    """Return whom the first rule names that names anybody; None where none does.

    A name is taken where it is an account of this host, or the rule says `any`. `facts` and
    `exists` answer from what is known by now. Raises Undecided.
    """
    for rule in rules:
        name = _name(rule, evidence, facts)
        if name is None or not _is_sound(name):
            continue
        known = True if rule.any else exists(name)
        if known is None:
            raise Undecided
        if known:
            return Person(name, by(rule))
    return None


def by(rule: OwnerRule) -> str:
    """Return how a face calls the rule: "rule: label com.example.user", "rule: home mount"."""
    if rule.label is not None:
        return f"rule: label {rule.label}"
    if rule.environment is not None:
        return f"rule: environment {rule.environment}"
    return "rule: home mount" if rule.home_mount else "rule: container name"


def _name(
    rule: OwnerRule,
    evidence: Evidence,
    facts: Callable[[Container], tuple[Facts | None, bool]],
) -> str | None:
    if rule.environment is not None:
        if evidence.environment is None:
            raise Undecided
        return evidence.environment.get(rule.environment)
    if rule.home_mount:
        if evidence.homes is None:
            raise Undecided
        [*names] = evidence.homes
        return names[0] if len(names) == 1 else None
    if rule.container_name is not None and evidence.container.name is not None:
        return _matched(rule.container_name, evidence.container.name)
    found, answered = facts(evidence.container)
    if not answered:
        raise Undecided
    if found is None:
        return None
    if rule.label is not None:
        return found.labels.get(rule.label)
    return None if found.name is None else _matched(rule.container_name or "", found.name)


@functools.lru_cache(maxsize=4096)
def _matched(pattern: str, name: str) -> str | None:
    if len(name) > NAME_PATTERN_LENGTH:  # the configuration has checked patterns up to there
        return None
    match = re.search(pattern, name)
    return None if match is None else match["user"]


def _is_sound(name: str) -> bool:
    """Whether it can be shown as it is: others write it."""
    return bool(name) and clean(name, NAME_LENGTH) == name
