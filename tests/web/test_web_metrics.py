"""The server's /metrics and /sd/prometheus: the cluster as Prometheus sees it."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from metrics.promtool import complaints
from msgspec import structs
from web_client import get, site
from web_cluster import cluster, every_state, gpu, holder, host, instance, simulated

import gpumon.web.app as web_app
from gpumon.cluster.metrics import MOST_USERS, PollCounts, metrics, targets
from gpumon.config import Config, HostEntry, MetricsConfig
from gpumon.web.app import make_app

NO_POLLS = PollCounts()


def text_of(status, polls: PollCounts = NO_POLLS, **config) -> str:
    return metrics(status, polls, MetricsConfig(**config)).decode()


def samples(text: str, name: str) -> dict[str, str]:
    """Return the samples of one family: value by labels."""
    found = re.findall(rf"^{re.escape(name)}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
    assert len({labels for labels, _ in found}) == len(found), "a sample stands twice"
    return dict(found)


@pytest.mark.parametrize("status", [every_state(), simulated(7)[0], cluster([])])
def test_prometheus_accepts_names_units_and_form(status):
    assert complaints(text_of(status)) == ""


def test_the_totals_are_those_of_the_page():
    status = every_state()
    text = text_of(status)
    for state in ("free", "busy", "idle", "fault", "unknown", "drained"):
        wanted = getattr(status.totals.gpus, state)
        assert samples(text, "gpumon_gpus")[f'{{state="{state}"}}'] == str(wanted)
    assert samples(text, "gpumon_hosts")['{state="fresh"}'] == str(status.totals.hosts_fresh)


def test_a_host_that_is_not_fresh_gives_no_reading_and_its_gpus_are_unknown():
    down = {"state": "down", "reason": "refused: nothing listens", "reason_kind": "refused"}
    gone = host("gone", [gpu(0, "unknown", reason="the host is down")], age_seconds=900.0, **down)
    never = host("never", [], state="never", age_seconds=None, answered_at=None, gpu_count=None)
    text = text_of(cluster([host("well", [gpu(0, "busy")]), gone, never]))
    assert samples(text, "gpumon_host_state")['{host="gone",state="down"}'] == "1"
    assert samples(text, "gpumon_host_state")['{host="gone",state="fresh"}'] == "0"
    assert samples(text, "gpumon_host_problem") == {'{host="gone",reason="refused"}': "1"}
    assert samples(text, "gpumon_host_reading_age_seconds") == {
        '{host="well"}': "4.0",
        '{host="gone"}': "900.0",
    }
    for name in (
        "gpumon_gpu_utilization_ratio",
        "gpumon_gpu_memory_used_bytes",
        "gpumon_gpu_user_processes",
        "gpumon_host_gpus",
        "gpumon_host_cpu_utilization_ratio",
    ):
        assert [labels for labels in samples(text, name) if 'host="well"' not in labels] == [], name
    unknown = [k for k, v in samples(text, "gpumon_gpu_state").items() if v == "1"]
    assert ['state="unknown"' in labels for labels in unknown] == [False, True]


def test_a_reading_that_is_not_known_is_absent_and_zero_is_there():
    text = text_of(
        cluster([host("h", [gpu(0, utilization_percent=None), gpu(1, power_draw_watts=None)])])
    )
    assert list(samples(text, "gpumon_gpu_utilization_ratio").values()) == ["0.0"]
    assert len(samples(text, "gpumon_gpu_power_draw_watts")) == 1
    assert list(samples(text, "gpumon_gpu_memory_used_bytes").values()) == ["0", "0"]


def test_no_pid_no_program_and_no_command_is_in_it():
    status = cluster([host("h", [gpu(0, "busy", holders=[holder("alice", pids=[4242421])])])])
    text = text_of(status)
    assert 'user="alice"' in text
    assert "4242421" not in text
    assert "python" not in text


def test_users_stay_out_where_the_configuration_says_so():
    text = text_of(every_state(), users=False)
    assert "alice" not in text
    assert not re.search(r"^gpumon_(gpu_)?users?_", text, re.MULTILINE)


def test_the_largest_users_are_named_and_the_rest_is_counted():
    rows = [
        gpu(0, "busy", holders=[holder(f"u{n:05}", gpu_memory_used_mib=n, pids=[n])])
        for n in range(MOST_USERS + 5)
    ]
    text = text_of(cluster([host("h", [structs.replace(g, index=n) for n, g in enumerate(rows)])]))
    assert len(samples(text, "gpumon_user_gpus")) == MOST_USERS
    assert len(samples(text, "gpumon_gpu_user_processes")) == MOST_USERS
    assert samples(text, "gpumon_users_left_out") == {"": "5"}
    assert "u00004" not in text
    assert "u00005" in text


def test_processes_of_an_unknown_owner_have_no_user_label():
    text = text_of(cluster([host("h", [gpu(0, "busy", holders=[holder(None, pids=[1, 2])])])]))
    [(labels, value)] = samples(text, "gpumon_gpu_user_processes").items()
    assert ("user=" in labels, value) == (False, "2")
    assert samples(text, "gpumon_user_gpus") == {"": "1"}


def test_memory_of_a_user_is_counted_once_where_a_gpu_has_instances():
    both = holder("erin", gpu_memory_used_mib=9_000)
    split = gpu(0, "busy", mig_mode=True, mig=[instance(0, "busy"), instance(1)], holders=[both])
    text = text_of(cluster([host("h", [split])]))
    [labels] = samples(text, "gpumon_gpu_user_memory_used_bytes")
    assert 'instance="0"' in labels
    assert samples(text, "gpumon_mig_memory_used_bytes")


def test_polls_are_counted_with_the_reason_of_their_failures():
    text = text_of(cluster([]), PollCounts(answered=10, failed={"refused": 2, "timed out": 0}))
    assert samples(text, "gpumon_polls_total") == {"": "12"}
    assert samples(text, "gpumon_poll_failures_total") == {
        '{reason="refused"}': "2",
        '{reason="timed out"}': "0",
    }


def test_hostile_names_stay_inside_their_quotes():
    evil = 'a"} 1\ngpumon_gpus{state="free'
    text = text_of(cluster([host(evil, [gpu(0, "busy", holders=[holder(evil)])])]))
    assert complaints(text) == ""
    assert len(samples(text, "gpumon_gpus")) == 6


def test_it_is_made_once_for_a_revision_and_kept_compressed(monkeypatch):
    made = []
    real = web_app.metrics
    monkeypatch.setattr(web_app, "metrics", lambda *args: made.append(args) or real(*args))
    app = site(every_state())
    first = get(app, "/metrics", accept="text/plain;version=0.0.4")
    assert first.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    second = get(app, "/metrics", accept_encoding="gzip")
    assert gzip.decompress(second.body) == first.body
    assert len(made) == 1


def test_targets_are_the_agents_with_what_a_rule_may_want_to_know():
    entries = [
        HostEntry(name="self", source="self", address="self"),
        HostEntry(name="a", source="xmlrpc", host="a.example", port=8043),
        HostEntry(
            name="dgx-3",
            source="xmlrpc",
            host="fd00::7",
            port=9043,
            tls=True,
            drained=True,
            labels={"room": "b12", "rack-no": "7"},
        ),
    ]
    app = make_app(status=every_state, detail=lambda _: None, config=Config(hosts=entries))
    reply = get(app, "/sd/prometheus")
    assert (reply.code, reply.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(reply.body) == targets(entries)
    assert json.loads(reply.body) == [
        {
            "targets": ["a.example:8043"],
            "labels": {
                "__scheme__": "http",
                "__meta_gpumon_host": "a",
                "__meta_gpumon_drained": "false",
            },
        },
        {
            "targets": ["[fd00::7]:9043"],
            "labels": {
                "__scheme__": "https",
                "__meta_gpumon_host": "dgx-3",
                "__meta_gpumon_drained": "true",
                "__meta_gpumon_label_room": "b12",
                "__meta_gpumon_label_rack_no": "7",
            },
        },
    ]


def test_without_hosts_the_list_of_targets_is_empty_and_still_a_list():
    app = make_app(status=lambda: cluster([]), detail=lambda _: None, config=Config(hosts=[]))
    assert get(app, "/sd/prometheus").body == b"[]"


def test_as_long_as_no_host_has_told_of_a_gpu_there_is_no_count_of_them():
    never = every_state().hosts[4]
    assert never.gpu_count is None
    assert "gpumon_gpus{" not in text_of(cluster([never]))
    without = structs.replace(every_state().hosts[2], gpu_count=0)
    assert 'gpumon_gpus{state="free"} 0' in text_of(cluster([without]))
