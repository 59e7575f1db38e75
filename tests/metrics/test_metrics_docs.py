"""docs/prometheus.md names every family, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from gpumon.agent import metrics as agent
from gpumon.cluster import metrics as server
from gpumon.metrics import gpus
from gpumon.metrics.exposition import Metric

DOCS = (Path(__file__).parents[2] / "docs" / "prometheus.md").read_text()


def families(*modules: object) -> set[str]:
    found = [value for module in modules for value in vars(module).values()]
    found += [metric for metric, _ in agent._READINGS]
    return {value.name for value in found if isinstance(value, Metric)}


def test_every_family_stands_in_the_tables_and_no_other():
    tables = "\n".join(line for line in DOCS.splitlines() if line.startswith("|"))
    named = set(re.findall(r"gpumon_[a-z0-9_]+", tables))
    assert named == families(agent, server, gpus)


def test_every_query_of_the_docs_is_about_a_family_that_there_is():
    [queries] = re.findall(r"## Questions\n\n```\n(.*?)```", DOCS, re.DOTALL)
    assert set(re.findall(r"gpumon_[a-z0-9_]+", queries)) <= families(agent, server, gpus)


def test_families_of_both_sides_mean_the_same():
    both: dict[str, Metric] = {}
    for module in (agent, server, gpus):
        for value in vars(module).values():
            if isinstance(value, Metric):
                assert both.setdefault(value.name, value) == value
