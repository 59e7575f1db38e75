"""vesta's senders: unchanged ones, and hostile ones."""

from __future__ import annotations

import json
import logging
import pickle
import urllib.error
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from cluster_tools import a_config
from http_serving import running
from push.vesta_sender import Sender, gpu

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.sources.pushed import PushInbox
from gpumon.cluster.sources.vesta import Unreadable, vesta_snapshot
from gpumon.config import HostEntry
from gpumon.http.push_tokens import PushTokens
from gpumon.http.server import Site
from gpumon.web.app import make_app
from gpumon.web.entrances import body_limit_of
from gpumon.web.push import MAX_BODY_BYTES
from gpumon.web.refused_pushes import Refusals
from gpumon.web.vesta import VestaDesk

NODE = HostEntry(name="node-1.lab", source="pushed", address="push://node-1.lab", host="node-1.lab")


@contextmanager
def server(
    *lines: str, accept_new: bool = False, entries: tuple[HostEntry, ...] = (NODE,)
) -> Iterator[tuple[int, Fleet]]:
    config = a_config(*entries)
    fleet = Fleet(config)
    tokens = PushTokens(list(lines) or ["v-token"])
    ways_in = [VestaDesk(PushInbox(fleet, accept_new=accept_new), tokens, Refusals())]
    app = make_app(status=fleet.status, detail=fleet.detail, config=config, entrances=ways_in)
    limit: Callable[..., int | None] = partial(body_limit_of, ways_in)
    with running(Site(name="web", app=app, binds=["127.0.0.1:0"], body_limit=limit)) as [port]:
        yield port, fleet


def test_an_unchanged_sender_is_shown_with_owners_and_with_reasons_for_the_unknown():
    with server() as (port, fleet):
        sender = Sender(port)
        assert (
            sender.send(gpu(0), gpu(1, used_memory=3, gpu_volatile=0, processes=[]))["status_code"]
            == 200
        )
        [host] = fleet.status().hosts
        assert (host.name, host.state, host.gpu_count) == ("node-1.lab", "fresh", 2)
        held, empty = host.gpus
        assert (held.state, held.utilization_percent, held.temperature_celsius) == ("busy", 87, 41)
        assert (held.holders[0].user, held.holders[0].program) == ("alice", "python")
        assert empty.state == "free"
        detail = fleet.detail("node-1.lab")
        assert detail.gpus[0].power_draw_watts is None
        assert "does not tell" in detail.gpus[0].unknown["power_draw_watts"]
        assert detail.gpus[0].processes[0].started_at is None


def test_the_name_is_rewritten_in_the_answer_and_nowhere_else():
    with server() as (port, fleet):
        told = Sender(port).get("/register/", host_name="node-1.lab", token="v-token")
        assert told["register_name"] == "node_1_lab"
        assert len(told["id"]) == 32
        assert fleet.status().hosts[0].name == "node-1.lab"


def test_a_sender_registers_again_after_a_restart_of_the_server():
    with server() as (port, _):
        first = Sender(port)
        first.send(gpu())
    with server() as (port, fleet):
        again = Sender(port)
        again.identity = first.identity
        assert again.send(gpu())["status_code"] == 200
        assert fleet.record("node-1.lab").answered is not None


def test_a_second_registration_takes_the_place_of_the_first():
    with server() as (port, _):
        first, second = Sender(port), Sender(port)
        first.send(gpu())
        second.send(gpu())
        told = first.post(f"/update/host/{first.identity}", b"{}", token="v-token")
        assert told["status_code"] == 404


@pytest.mark.parametrize("token", ["", "0000", "v-toke", "v-token\0", "\ud7ff"])
def test_a_wrong_token_is_refused_with_http_200_and_said_on_the_row(token: str, caplog):
    with server() as (port, fleet), caplog.at_level(logging.INFO):
        assert Sender(port, token=token).send(gpu())["status_code"] == 403
        [host] = fleet.status().hosts
        assert (host.state, host.reason_kind) == ("never", "wrong token")
        assert caplog.text.count("was refused") == 1
        assert "0000" not in caplog.text


def test_a_bound_token_is_good_for_its_host_alone_also_after_registering():
    entries = (NODE, HostEntry(name="b", source="pushed", address="push://b", host="b"))
    with server("node-1.lab one", "b two", entries=entries) as (port, _):
        sender = Sender(port, token="one")
        assert sender.send(gpu())["status_code"] == 200
        sender.token = "two"
        assert sender.send(gpu())["status_code"] == 403
        assert Sender(port, host="b", token="one").send(gpu())["status_code"] == 403


NAMES = ["", "a b", "x'; DROP TABLE machines;--", "../../etc", "<script>", "a/b", "n" * 65, "é"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_is_refused(name: str):
    with server(accept_new=True) as (port, fleet):
        told = Sender(port, host=name).send(gpu())
        assert told["status_code"] == 403
        assert len(fleet.records()) == 1


def test_a_host_that_is_not_expected_is_refused_unless_new_ones_are_allowed():
    with server() as (port, fleet):
        told = Sender(port, host="stranger").send(gpu())
        assert told["status_code"] == 403
        assert "push://stranger" in told["message"]
        assert len(fleet.records()) == 1
    with server(accept_new=True) as (port, fleet):
        assert Sender(port, host="stranger").send(gpu())["status_code"] == 200
        assert fleet.status().hosts[1].name == "stranger"


HOSTILE = {
    "nothing": b"",
    "a pickle": pickle.dumps({"gpu_data": {}}),
    "a list": b"[]",
    "no GPU": b'{"gpu_data": {}}',
    "other keys": b'{"gpu_data": {"gpu:x": {}}}',
    "brackets": b"[" * 100_000,
    "a GPU twice": json.dumps({"gpu:1": gpu(), "gpu:01": gpu()}).encode(),
    "too many": json.dumps({f"gpu:{n}": gpu(n) for n in range(65)}).encode(),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_reading_is_refused_and_said_on_the_row(case: str, caplog):
    with server() as (port, fleet), caplog.at_level(logging.INFO):
        assert Sender(port).send_raw(HOSTILE[case])["status_code"] == 400
        [host] = fleet.status().hosts
        assert (host.state, host.reason_kind) == ("never", "bad answer")
        assert "Traceback" not in caplog.text


def test_the_same_reading_again_is_refused_and_its_host_says_so():
    with server() as (port, fleet):
        sender = Sender(port)
        body = json.dumps({"gpu_data": {"gpu:0": gpu()}}).encode()
        assert sender.send_raw(body)["status_code"] == 200
        assert sender.send_raw(body)["status_code"] == 403
        assert "was posted before" in fleet.status().hosts[0].notes[-1]
        assert sender.send(gpu())["status_code"] == 200


def test_an_oversized_reading_is_refused_and_without_a_token_a_smaller_one_too():
    with server() as (port, fleet):
        sender = Sender(port)
        sender.send(gpu())
        for size, token, code, words in (
            (MAX_BODY_BYTES + 1, "v-token", 400, "has more than 1048576 bytes: not read"),
            (100_000, "wrong", 403, "came with no token of"),
        ):
            path = f"/update/host/{sender.identity}"
            assert sender.post(path, b" " * size, token=token)["status_code"] == code
            assert words in fleet.record("node-1.lab").refused.message
        # After a restart of the server: a host with many processes is asked to register as well.
        assert sender.post(f"/update/host/{'0' * 32}", b" " * 100_000)["status_code"] == 404


@pytest.mark.parametrize("identity", ["None", "0" * 32, "x" * 5000, "%00", "../register"])
def test_an_unknown_id_is_asked_to_register(identity: str):
    with server() as (port, _):
        path = f"/update/host/{urllib.parse.quote(identity, safe='')}"
        assert Sender(port).status_of(path) == 404


ODD = {
    "gpu_volatile": (-1, 101, "N/A", "[Not Supported]", None, True, 1e308, [], 10**30),
    "temperature": (-5, 100_000, "hot"),
    "total_memory": (-1, "24 GiB", 10**18),
}


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, values in ODD.items() for v in values])
def test_a_value_that_can_not_be_is_unknown_and_says_what_was_told(key: str, value: object):
    field = {
        "gpu_volatile": "utilization_percent",
        "temperature": "temperature_celsius",
        "total_memory": "memory_total_mib",
    }[key]
    body = json.dumps({"gpu:0": gpu(0, **{key: value}), "gpu:1": gpu(1)}).encode()
    first, second = vesta_snapshot(body, "x").gpus
    assert getattr(first, field) is None
    assert first.unknown[field].startswith("vesta's sender told")
    assert getattr(second, field) is not None


@pytest.mark.parametrize(
    "processes",
    [None, "none", [1], [{"pid": "x"}], [{"pid": 0}], [{"user": "a"}], [{"pid": "1"}] * 1001],
)
def test_a_list_of_processes_that_can_not_be_read_is_unknown_and_not_empty(processes: object):
    body = json.dumps({"gpu:0": gpu(0, processes=processes)}).encode()
    [found] = vesta_snapshot(body, "x").gpus
    assert found.processes is None
    assert "processes" in found.unknown


def test_text_is_cleaned_and_arguments_stay_out_of_the_name():
    process = {
        "pid": 7,
        "name": "/opt/x --password=s3cret",
        "user": "a\x1b[31m",
        "used_memory": "9",
    }
    body = json.dumps({"gpu:0": gpu(0, processes=[process], gpu_name="\u202eRTX")}).encode()
    [found] = vesta_snapshot(body, "x").gpus
    assert found.name == "\ufffdRTX"
    assert found.processes[0].program == "x"
    assert "\x1b" not in found.processes[0].user
    assert found.processes[0].gpu_memory_used_mib == 9


def test_one_gpu_that_is_none_does_not_hide_the_others():
    body = json.dumps({"gpu:0": "broken", "gpu:1": gpu(1)}).encode()
    first, second = vesta_snapshot(body, "x").gpus
    assert first.error is not None
    assert second.memory_used_mib == 20_000


def test_a_body_without_the_outer_object_is_read_as_well():
    assert vesta_snapshot(json.dumps({"gpu:3": gpu(3)}).encode(), "x").gpus[0].index == 3
    with pytest.raises(Unreadable):
        vesta_snapshot(b"null", "x")
