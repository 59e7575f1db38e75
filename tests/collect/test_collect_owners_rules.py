"""From a container of root's to a person: only by rules, and never by a guess."""

from __future__ import annotations

import time

import pytest
from owner_forms import ID
from owner_trees import HOST_MOUNTS

from gpumon.collect.owners import mounts
from gpumon.collect.owners.containers import Container
from gpumon.collect.owners.rules import Evidence, Person, Undecided, person
from gpumon.collect.owners.runtime import Facts
from gpumon.collect.owners.subuid import Subuids
from gpumon.config import OwnerRule

ACCOUNTS = {"alice", "bob", "carol", "root"}
BY_LABEL = OwnerRule(label="com.example.user")
BY_VARIABLE = OwnerRule(environment="JOB_OWNER")
BY_HOME = OwnerRule(home_mount=True)
BY_NAME = OwnerRule(container_name="^(?P<user>[a-z]+)-")


def exists(name):
    return name in ACCOUNTS


def found(
    *rules, environment=None, homes=(), facts=None, known=True, exists=exists, runtime="docker"
):
    evidence = Evidence(
        Container(runtime, ID if runtime == "docker" else "gpu-bob"),
        {} if environment is None else environment,
        None if homes is None else frozenset(homes),
    )
    return person(rules, evidence, lambda _: (facts, known), exists)


# ---- Each rule alone. ----


def test_a_label_names_the_person():
    facts = Facts("x", {"com.example.user": "alice"})
    assert found(BY_LABEL, facts=facts) == Person("alice", "rule: label com.example.user")


def test_a_variable_names_the_person():
    environment = {"JOB_OWNER": "alice"}
    assert found(BY_VARIABLE, environment=environment) == (
        Person("alice", "rule: environment JOB_OWNER")
    )


def test_a_home_names_the_person():
    assert found(BY_HOME, homes=["alice"]) == Person("alice", "rule: home mount")


def test_the_name_of_the_container_names_the_person():
    assert found(BY_NAME, facts=Facts("alice-train", {})) == Person("alice", "rule: container name")


def test_a_container_that_is_known_by_its_name_needs_no_socket():
    rule = OwnerRule(container_name="^gpu-(?P<user>.*)$")
    assert found(rule, runtime="lxc", known=False) == Person("bob", "rule: container name")


# ---- What no rule makes a person of. ----


def test_a_name_longer_than_patterns_were_checked_for_names_nobody():
    assert found(BY_NAME, facts=Facts("alice-" + "x" * 122, {})) is not None
    assert found(BY_NAME, facts=Facts("alice-" + "x" * 123, {})) is None


def test_two_homes_are_nobodys():
    assert found(BY_HOME, homes=["alice", "bob"]) is None


@pytest.mark.parametrize(
    "value", ["", "mallory", "Alice", " alice", "alice\n", "al\x1b[31mice", "x" * 100]
)
def test_what_is_no_account_is_no_owner(value):
    assert found(BY_VARIABLE, environment={"JOB_OWNER": value}) is None


def test_what_is_no_account_is_taken_where_the_rule_says_any_but_only_as_clean_text():
    rule = OwnerRule(environment="JOB_OWNER", any=True)
    assert found(rule, environment={"JOB_OWNER": "team-7"}).name == "team-7"
    for value in ("", " team", "team\x1b[31m", "te\u202eam", "x" * 65):
        assert found(rule, environment={"JOB_OWNER": value}) is None


def test_without_rules_nobody_is_named():
    assert found(environment={"JOB_OWNER": "alice"}, homes=["alice"]) is None


def test_a_container_that_the_runtime_does_not_have_has_no_label_and_no_name():
    assert found(BY_LABEL, BY_NAME, facts=None) is None


# ---- Several rules. ----


def test_the_first_rule_that_names_an_account_wins():
    facts = Facts("bob-train", {})
    assert found(BY_LABEL, BY_HOME, BY_NAME, homes=["alice"], facts=facts).name == "alice"
    assert found(BY_NAME, BY_HOME, homes=["alice"], facts=facts).name == "bob"
    environment = {"JOB_OWNER": "mallory"}
    assert found(BY_VARIABLE, BY_HOME, environment=environment, homes=["alice"]).name == "alice"


@pytest.mark.parametrize(
    ("rule", "unknown"),
    [
        (BY_LABEL, {"known": False}),
        (BY_NAME, {"known": False}),
        (BY_VARIABLE, {"exists": lambda _: None, "environment": {"JOB_OWNER": "bob"}}),
    ],
)
def test_a_rule_that_cannot_be_asked_yet_is_not_passed_over(rule, unknown):
    with pytest.raises(Undecided):
        found(rule, BY_HOME, homes=["alice"], **unknown)


def test_evidence_that_cannot_be_read_is_not_passed_over():
    evidence = Evidence(Container("docker", ID), None, None)
    for rule in (BY_VARIABLE, BY_HOME):
        with pytest.raises(Undecided):
            person([rule, BY_NAME], evidence, lambda _: (Facts("alice-x", {}), True), exists)


# ---- Homes, from two mount tables. ----


def inside(*lines):
    """A container's mounts: an overlay for its root, and these (device, root, point)."""
    table = "400 300 0:99 / / rw,relatime - overlay overlay rw\n"
    for number, (device, root, point) in enumerate(lines, 401):
        table += f"{number} 400 {device} {root} {point} rw,relatime - ext4 /dev/x rw\n"
    return table


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ([("0:45", "/homes/alice", "/workspace")], {"alice"}),
        ([("0:45", "/homes/alice", "/home/alice")], {"alice"}),
        ([("8:1", "/home/bob", "/data")], {"bob"}),
        ([("0:60", "/", "/root")], {"carol"}),
        ([("0:45", "/homes/alice", "/a"), ("0:60", "/", "/b")], {"alice", "carol"}),
        ([("0:45", "/homes/with\\040blank", "/a")], {"with blank"}),
        # A folder in a home may be there for others to read.
        ([("0:45", "/homes/alice/data", "/data")], set()),
        # The container's side of a mount is what its maker wrote.
        ([("8:1", "/srv/scratch", "/home/alice")], set()),
        # Somebody who has all homes is none of their owners.
        ([("0:45", "/homes", "/home"), ("0:60", "/", "/home/carol")], set()),
        ([("8:1", "/", "/host"), ("0:60", "/", "/host/home/carol")], set()),
        # Another file system with a folder of the same name.
        ([("0:77", "/homes/alice", "/home/alice")], set()),
        ([("0:45", "/homes2/alice", "/x")], set()),
        ([], set()),
    ],
)
def test_a_home_is_told_by_its_folder_on_the_host(lines, names):
    assert mounts.homes(inside(*lines), mounts.points_of_homes(HOST_MOUNTS)) == names


def test_a_mount_table_of_another_form_names_nobody():
    for text in ("", "\n\n", "nonsense", "1 2 3 4 5\n", "400 300 0:45 /homes/alice"):
        assert mounts.homes(text, mounts.points_of_homes(HOST_MOUNTS)) == set()
        alices = inside(("0:45", "/homes/alice", "/x"))
        assert mounts.homes(alices, mounts.points_of_homes(text)) == set()


def test_thousands_of_mounts_of_one_file_system_take_no_time():
    """Whoever may mount can make as many as they like, each of them beside all of the host's."""
    host = HOST_MOUNTS + "".join(
        f"{number} 22 8:1 /srv/data{number} /mnt/{number} rw - ext4 /dev/sda1 rw\n"
        for number in range(1000, 7000)
    )
    deep = "/srv" + "/x" * 500
    many = [
        ("8:1", f"{deep if number % 9 == 0 else '/srv'}/{number}", "/m") for number in range(6000)
    ]
    container = inside(*many, ("0:45", "/homes/alice", "/work"))
    begin = time.perf_counter()
    assert mounts.homes(container, mounts.points_of_homes(host)) == {"alice"}
    assert time.perf_counter() - begin < 1.0


# ---- Uids of rootless containers. ----


@pytest.fixture
def subuid(tmp_path):
    def make(text):
        (tmp_path / "subuid").write_text(text)
        return Subuids(str(tmp_path / "subuid"))

    return make


@pytest.mark.parametrize(
    ("text", "owners"),
    [
        ("alice:231072:65536\n", {"alice"}),
        ("1000:231072:65536\n", {"1000"}),
        ("alice:231072:1\n", {"alice"}),
        ("alice:231073:65536\n", set()),
        ("alice:165536:65536\n", set()),
        ("alice:231072:65536\nbob:231072:65536\n", {"alice", "bob"}),
        ("# a comment\n\nalice:x:1\nalice:1\n:231072:5\nalice:-5:999999\nalice:²:9\n", set()),
        ("", set()),
    ],
)
def test_ranges_of_uids_say_to_whom_a_uid_was_given(subuid, text, owners):
    assert subuid(text).owners_of(231072) == owners


def test_a_changed_file_is_read_again_and_a_missing_one_gives_nothing(subuid, tmp_path):
    made = subuid("alice:231072:65536\n")
    assert made.owners_of(231072) == {"alice"}
    (tmp_path / "subuid").write_text("bob:231072:65536:\nbob:231072:65536\n")
    assert made.owners_of(231072) == {"bob"}
    (tmp_path / "subuid").unlink()
    assert made.owners_of(231072) == set()
