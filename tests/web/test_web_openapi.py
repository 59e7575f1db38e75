"""The description of the JSON answers holds for the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from web_client import get, site
from web_cluster import cluster, every_state, host, simulated

from gpumon.cluster.status import ClusterStatus
from gpumon.simulate import SimulatedHost, host_names

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"


def document() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(get(site(every_state()), "/openapi.json").body)
    return told


def check(answer: Any, schema: str) -> None:
    whole = {"$ref": f"#/components/schemas/{schema}", **document()}
    jsonschema.Draft202012Validator(whole).validate(answer)


@pytest.mark.parametrize(
    "status", [every_state(), cluster([]), simulated(9)[0]], ids=["mixed", "empty", "simulated"]
)
def test_status_json_is_what_its_schema_says(status: ClusterStatus) -> None:
    check(json.loads(get(site(status), "/status.json").body), "ClusterStatus")


def test_hosts_and_users_are_what_their_schemas_say() -> None:
    [name] = host_names(1)
    detail = SimulatedHost(name=name, number=0).snapshot(1_767_600_000.0)
    app = site(cluster([host(name)]), lambda _: detail)
    check(json.loads(get(app, f"/host/{name}.json").body), "HostAnswer")
    for user in ("alice", "nobody-at-all"):
        check(json.loads(get(site(every_state()), f"/user/{user}.json").body), "UserAnswer")
    reply = get(app, "/host/nix.json")
    assert reply.code == 404
    check(json.loads(reply.body), "ErrorAnswer")
    check(json.loads(get(app, "/healthz").body), "HealthAnswer")


def test_an_answer_that_lacks_a_field_is_found_by_the_schema() -> None:
    answer = json.loads(get(site(every_state()), "/status.json").body)
    del answer["hosts"][0]["gpus"][0]["state"]
    with pytest.raises(jsonschema.ValidationError, match="'state' is a required property"):
        check(answer, "ClusterStatus")


def test_fields_carry_their_meaning_from_the_source() -> None:
    schemas = document()["components"]["schemas"]
    assert "clock" in schemas["HostStatus"]["properties"]["answered_at"]["description"]
    assert schemas["GpuStatus"]["properties"]["state"]["enum"] == sorted(
        ["free", "busy", "idle", "fault", "unknown", "drained"]
    )


def test_the_document_in_docs_is_the_one_that_the_server_gives() -> None:
    told = json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
    assert COMMITTED.read_text() == told, "write it anew: make openapi"
