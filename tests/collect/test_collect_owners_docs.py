"""docs/owners.md says what is done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpumon.collect.owners.containers import as_text, container_of
from gpumon.collect.owners.jobs import job_of
from gpumon.config import OwnerRule
from gpumon.config.loader import load
from gpumon.model import Process

DOCS = (Path(__file__).parents[2] / "docs" / "owners.md").read_text("utf-8")
DIGITS = "3f4e2a1b9c0d"


def table(heading):
    """Return the rows below this heading line of a table, as lists of cells without back ticks."""
    rows = DOCS.split(heading + "\n")[1].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip().strip("`") for cell in row.strip("|").split(" | ")] for row in rows]


CONTAINERS = table("| made by | cgroup, for example | `container` |")
JOBS = table("| batch system | cgroup, for example | `job` |")


@pytest.mark.parametrize(("made_by", "path", "shown"), CONTAINERS)
def test_the_containers_of_the_docs_are_recognised(made_by, path, shown):
    assert as_text(container_of([path.replace("…", "0" * 52)])) == shown, made_by


@pytest.mark.parametrize(("system", "path", "shown"), JOBS)
def test_the_jobs_of_the_docs_are_recognised(system, path, shown):
    assert job_of([path]) == shown, system


def test_the_fields_of_the_docs_are_those_of_a_process():
    fields = [row[0] for row in table("| field of a process | what it is | example |")]
    assert len(fields) == 6
    assert set(fields) <= set(Process.__struct_fields__)


def test_the_examples_of_the_configuration_are_taken(tmp_path):
    examples = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        (tmp_path / "config.yml").write_text(example)
        config = load(str(tmp_path / "config.yml"), environ={})
        assert config.agent.container_socket == Path("/run/docker.sock")
    assert config.agent.owner_rules == [
        OwnerRule(label="com.example.user"),
        OwnerRule(environment="JOB_OWNER"),
        OwnerRule(home_mount=True),
        OwnerRule(container_name="^(?P<user>[a-z]+)-"),
        OwnerRule(environment="TEAM", any=True),
    ]


def test_every_rule_of_the_docs_is_one_of_the_configuration():
    rules = [row[0] for row in table("| rule | the name is |")]
    assert rules == [field for field in OwnerRule.__struct_fields__ if field != "any"]
