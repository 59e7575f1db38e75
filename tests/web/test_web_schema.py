"""One documented schema: every field has its meaning and unit, and real answers fit it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec import structs
from web_client import get, site
from web_cluster import cluster, every_state, gpu, holder, host, simulated

from gpumon.agent.app import make_app as agent_app
from gpumon.agent.latest import Latest
from gpumon.errors import CollectError
from gpumon.model import HostSnapshot, encode
from gpumon.web.fields import unit_of
from gpumon.web.schema import json_schema, schemas

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "schema.json"
HOSTILE = "\"><script>alert(1)</script>\x1b[31m'\u202e" + "\N{PILE OF POO}" * 3
WITHOUT_A_UNIT = {
    "performance_state", "load_1m", "load_5m", "load_15m", "uid", "mig", "processes",
    "remapped_rows_uncorrected", "retired_pages_uncorrected",
}  # fmt: skip
"""Numbers that are neither measured nor called a count in their description."""

FIELDS = [
    (type_name, name, field)
    for type_name, schema in schemas("{name}").items()
    for name, field in schema["properties"].items()
]


def check(answer: Any, type_name: str) -> None:
    whole = {**json.loads(json_schema()), "anyOf": [{"$ref": f"#/$defs/{type_name}"}]}
    jsonschema.Draft202012Validator(whole).validate(answer)


def kinds(field: dict[str, Any]) -> set[str]:
    return {part.get("type") for part in [field, *field.get("anyOf", [])]}


def test_every_type_and_every_field_says_what_it_means() -> None:
    assert len(FIELDS) > 200
    assert [f"{kind}.{name}" for kind, name, field in FIELDS if not field.get("description")] == []
    undescribed = [name for name, schema in schemas("{name}").items() if not schema["description"]]
    assert undescribed == []


def test_every_number_says_its_unit_or_that_it_is_a_count() -> None:
    without = [
        f"{kind}.{name}"
        for kind, name, field in FIELDS
        if kinds(field) & {"integer", "number"}
        and unit_of(name) is None
        and name not in WITHOUT_A_UNIT
        and not re.search("count|[Nn]umber", field["description"])
    ]
    assert without == []
    for kind, name, field in FIELDS:
        unit = unit_of(name)
        if unit is not None:
            assert field["description"].endswith(f"Unit: {unit}."), f"{kind}.{name}"


def test_no_description_speaks_of_pythons_none() -> None:
    assert [name for _, name, field in FIELDS if re.search(r"\bNone\b", field["description"])] == []


def test_the_schema_is_one_itself_and_stands_in_docs_as_the_server_gives_it() -> None:
    reply = get(site(every_state()), "/schema.json")
    assert reply.headers["Content-Type"] == "application/json"
    told = json.loads(reply.body)
    jsonschema.Draft202012Validator.check_schema(told)
    written = json.dumps(told, indent=1, ensure_ascii=False) + "\n"
    assert COMMITTED.read_text() == written, "write it anew: make openapi"


def test_help_and_openapi_lead_to_the_schema() -> None:
    app = site(every_state())
    assert '<a href="./schema.json">' in get(app, "/help").text
    assert "schema.json" in get(app, "/help", accept="*/*").text
    assert json.loads(get(app, "/openapi.json").body)["externalDocs"]["url"] == "schema.json"


def test_what_a_demo_of_all_kinds_of_hosts_answers_fits() -> None:
    status, details, _ = simulated(12)
    app = site(status, details.get)
    check(json.loads(get(app, "/status.json").body), "ClusterStatus")
    check(json.loads(get(app, "/status.json?q=free+nonsense&sort=x&page=7").body), "ClusterStatus")
    assert {one.state for one in status.hosts} > {"fresh"}, "the demo has broken hosts, too"
    for one in status.hosts:
        check(json.loads(get(app, f"/host/{one.name}.json").body), "HostAnswer")
    for user in ("bob", "nobody-at-all"):
        check(json.loads(get(app, f"/user/{user}.json").body), "UserAnswer")
    check(json.loads(get(app, "/healthz").body), "HealthAnswer")
    for path in ("/nothing.json", "/host/nobody.json"):
        check(json.loads(get(app, path).body), "ErrorAnswer")


def test_hostile_names_fit() -> None:
    [busy] = [gpu(0, "busy", name=HOSTILE, model=HOSTILE, holders=[holder(HOSTILE)])]
    app = site(cluster([host("gpu-1", [busy], reason=HOSTILE, labels={HOSTILE: HOSTILE})]))
    check(json.loads(get(app, "/status.json").body), "ClusterStatus")
    check(json.loads(get(app, "/host/gpu-1.json").body), "HostAnswer")


def a_snapshot_of(latest: Latest) -> Any:
    app = agent_app(lambda: latest, None, clock=lambda: 3.0)
    return json.loads(get(app, "/snapshot.json", host="127.0.0.1").body)


def test_an_agents_snapshot_fits_whole_broken_or_before_the_first_reading() -> None:
    _, details, _ = simulated(9)
    broken = HostSnapshot(errors=["no driver"], error_kind=CollectError.KINDS[0])
    for snapshot in (*details.values(), broken):
        plain = structs.replace(snapshot, sample_age_seconds=None, sampler_error=None)
        latest = Latest(revision="1", interval=5.0, snapshot=encode(plain), taken_at=0.0)
        answer = a_snapshot_of(structs.replace(latest, sampler_error=None))
        check(answer, "HostSnapshot")
        assert answer["sample_age_seconds"] == 3.0
    check(a_snapshot_of(Latest(revision="0", interval=5.0)), "HostSnapshot")


def test_an_answer_with_a_wrong_type_does_not_fit() -> None:
    answer = json.loads(get(site(every_state()), "/status.json").body)
    answer["hosts"][0]["gpus"][0]["utilization_percent"] = "73"
    with pytest.raises(jsonschema.ValidationError):
        check(answer, "ClusterStatus")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(answer, json.loads(json_schema()))
