"""The agent over a real socket, asked by the stock XML-RPC client and by raw requests."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import socket
import ssl
import time
import xmlrpc.client
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from agent_examples import busy, gpu, host, instance, large, latest, mig, process, unknown
from certificates import issue
from http_serving import get, running

from gpumon.agent.app import make_app
from gpumon.agent.latest import Latest, SkippedGpu
from gpumon.config import TlsConfig
from gpumon.http.auth import Tokens
from gpumon.http.server import Site
from gpumon.model import HostSnapshot, decode_snapshot
from gpumon.summary import decode_summary

NAMES = [
    "free", "gpu_stats", "gpus", "health", "poll", "processes", "snapshot", "snapshot_json",
    "system.listMethods", "system.methodHelp", "system.methodSignature", "version",
]  # fmt: skip


@contextmanager
def agent(
    known: Latest, tokens: Tokens | None = None, tls: TlsConfig | None = None
) -> Iterator[int]:
    site = Site(name="agent", app=make_app(lambda: known, tokens), binds=["127.0.0.1:0"], tls=tls)
    with running(site) as [port]:
        yield port


@contextmanager
def client(known: Latest) -> Iterator[xmlrpc.client.ServerProxy]:
    """Yield Python's own client, as anybody would make it."""
    with agent(known) as port, xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}") as proxy:
        yield proxy


def post(port: int, body: bytes, path: str = "/RPC2", **headers: str):
    return get(port, path, "POST", body, **{"Content_Type": "text/xml", **headers})


def call(name: str, *parameters: object) -> bytes:
    return xmlrpc.client.dumps(parameters, name, allow_none=True).encode()


# ---- Methods. ----


def test_every_method_answers_the_stock_client():
    with client(latest(large())) as proxy:
        assert proxy.system.listMethods() == NAMES
        stats = json.loads(proxy.gpu_stats())
        assert len(stats["gpus"]) == len(stats["procs"]) == 8
        assert stats["procs"][0][0]["userid"] == "alice"
        snapshot = proxy.snapshot()
        assert snapshot["gpus"][7]["processes"][19]["pid"] == 7019
        assert snapshot["gpus"][0]["error"] is None
        assert 1.0 <= snapshot["sample_age_seconds"] < 30
        text = proxy.snapshot_json()
        assert decode_snapshot(text).gpus == large().gpus
        assert 1.0 <= decode_snapshot(text).sample_age_seconds < 30
        for name in NAMES:
            assert proxy.system.methodHelp(name).startswith("Return ")
            assert proxy.system.methodSignature(name)[0][0] in ("string", "struct", "array")


def test_poll_gives_summary_and_packed_detail_and_the_short_form_for_a_known_revision():
    known = latest(large(), sampler_error="a <b> & c")
    with client(known) as proxy:
        revision, summary, packed = proxy.poll()
        assert revision == known.revision
        assert len(decode_summary(summary).gpus) == 8
        assert 1.0 <= decode_summary(summary).sample_age_seconds < 30
        assert decode_snapshot(gzip.decompress(base64.b64decode(packed))).gpus == large().gpus
        again, short = proxy.poll(revision)
        assert again == revision
        told = json.loads(short)
        assert list(told) == ["sample_age_seconds", "sampler_error"]
        assert told["sample_age_seconds"] >= 1.0
        assert told["sampler_error"] == "a <b> & c"
        assert len(proxy.poll("another")) == 3


def test_poll_is_byte_for_byte_what_the_standard_library_would_write():
    known = latest(large())
    with agent(known) as port:
        body = post(port, call("poll", None)).body
    [value], _ = xmlrpc.client.loads(body)
    assert body == xmlrpc.client.dumps((value,), methodresponse=True).encode()


def test_parts_carry_the_age_and_no_process_list_passes_for_an_empty_one():
    snapshot = host(
        busy(0),
        gpu(1, processes=None),
        unknown(2),
        mig(3, instance(0, processes=[process(9)]), instance(1, processes=None)),
    )
    with client(latest(snapshot, age=7.0)) as proxy:
        gpus = proxy.gpus()
        assert [one["processes_known"] for one in gpus] == [True, False, False, False]
        assert [one["processes_known"] for one in gpus[3]["mig"]] == [True, False]
        assert gpus[2]["error"] == "the driver has not answered since 14:02:11"
        assert gpus[2]["memory_used_mib"] is None
        assert all(one["sample_age_seconds"] >= 7.0 for one in gpus)
        rows = proxy.processes()
        assert [(row["gpu_index"], row["mig_index"], row["pid"]) for row in rows] == [
            (0, None, 100),
            (3, 0, 9),
        ]
        assert rows[0]["gpu_uuid"] == "GPU-0"
        assert rows[0]["sample_age_seconds"] >= 7.0


def test_free_gives_what_is_free_now_and_nothing_from_an_old_sample():
    snapshot = host(busy(0), gpu(1), gpu(2), unknown(3))
    with client(latest(snapshot)) as proxy:
        assert [one["uuid"] for one in proxy.free()] == ["GPU-1"]
        assert [one["uuid"] for one in proxy.free(8)] == ["GPU-1", "GPU-2"]
        assert proxy.free(8, 80_000, "h100")[0]["memory_free_mib"] == 81008
        assert proxy.free(8, 0, "a100") == []
    with client(latest(snapshot, age=25.1)) as proxy:
        assert proxy.free(8) == []


def test_free_leaves_out_a_gpu_that_failed_since_the_sample():
    newest = latest(host(gpu(0), gpu(1)))
    failed = SkippedGpu(index=0, uuid="GPU-0", name=None, error="it hung", retry_at=0.0)
    with client(msgspec.structs.replace(newest, skipped=(failed,))) as proxy:
        assert [one["uuid"] for one in proxy.free(8)] == ["GPU-1"]


def test_an_old_sample_makes_no_gpu_look_free_to_gpumonitors_page():
    with client(latest(host(gpu(0)), age=26.0, sampler_error="the driver hangs")) as proxy:
        [one] = json.loads(proxy.gpu_stats())["gpus"]
        assert one["memory_used"] == one["memory_total"]
        assert one["error"] == "the driver hangs"


@pytest.mark.parametrize("known", [latest(None), latest(host())])
def test_a_host_without_gpus_is_a_fault_for_gpumonitors_page_which_breaks_on_it(known):
    with client(known) as proxy, pytest.raises(xmlrpc.client.Fault) as caught:
        proxy.gpu_stats()
    assert caught.value.faultCode == 1
    assert caught.value.faultString in ("no sample has been taken yet", "this host shows no GPU")


def test_version_and_health_tell_what_is_known():
    skipped = SkippedGpu(
        index=2, uuid="GPU-2", name="H100", error="it hung", retry_at=time.monotonic() + 60
    )
    known = latest(large(), restarts=3, last_error="it hung", skipped=(skipped,))
    with client(known) as proxy:
        version = proxy.version()
        assert version["schema"] == 1
        assert version["driver_version"] == "550.54.15"
        health = proxy.health()
    assert health["ok"] is True
    assert health["sample_age_seconds"] >= 1.0
    assert (health["restarts"], health["last_error"]) == (3, "it hung")
    assert health["sampler_error"] is None
    [told] = health["skipped"]
    assert (told["index"], told["uuid"], told["error"]) == (2, "GPU-2", "it hung")
    assert 50 < told["next_try_seconds"] <= 60


@pytest.mark.parametrize("method", ["gpu_stats", "gpus", "processes", "free"])
def test_a_host_whose_gpus_nobody_knows_is_no_host_without_gpus(method):
    no_driver = HostSnapshot(hostname="h", time=1e9, errors=["No driver answers."])
    for known, words in ((latest(None), "no sample"), (latest(no_driver), "No driver answers")):
        with client(known) as proxy, pytest.raises(xmlrpc.client.Fault, match=words) as told:
            getattr(proxy, method)()
        assert told.value.faultCode == 1
    with client(latest(no_driver)) as proxy:
        health = proxy.health()
    assert (health["ok"], health["errors"], health["gpu_count"]) == (
        True,
        ["No driver answers."],
        None,
    )
    none = HostSnapshot(hostname="h", time=1e9, gpu_count=0)
    with client(latest(none)) as proxy:
        if method == "gpu_stats":
            with pytest.raises(xmlrpc.client.Fault, match="this host shows no GPU"):
                proxy.gpu_stats()
        else:
            assert getattr(proxy, method)() == []


def test_before_the_first_sample_every_method_about_the_agent_answers():
    with client(latest(None)) as proxy:
        assert proxy.snapshot()["gpu_count"] is None
        assert decode_snapshot(proxy.snapshot_json()).sampler_error
        assert len(proxy.poll()) == 3
        assert proxy.health()["ok"] is False
        assert proxy.version()["driver_version"] is None


@pytest.mark.parametrize(
    ("method", "parameters", "code", "says"),
    [
        ("no_such", (), -32601, "there is no such method"),
        ("system.multicall", ([],), -32601, "there is no such method"),
        ("__class__", (), -32601, "there is no such method"),
        ("respond", (b"",), -32601, "there is no such method"),
        ("snapshot", (1,), -32602, "snapshot: too many positional arguments"),
        ("poll", (1,), -32602, "poll: the revision must be a string"),
        ("poll", ([],), -32602, "poll: the revision must be a string"),
        ("free", (0,), -32602, "free: count must be an int from 1"),
        ("free", (True,), -32602, "free: count must be an int"),
        ("free", ("1",), -32602, "free: count must be an int"),
        ("free", (1, -1), -32602, "free: min_free_mib must be an int"),
        ("free", (1, 0, 5), -32602, "free: name must be a string"),
        ("system.methodHelp", (), -32602, "missing a required argument"),
        ("system.methodHelp", ([],), -32601, "there is no such method"),
    ],
)
def test_a_wrong_call_is_a_fault_with_a_sentence(method, parameters, code, says, caplog):
    with agent(latest(large())) as port:
        answer = post(port, call(method, *parameters))
    assert answer.status == 200
    with pytest.raises(xmlrpc.client.Fault) as caught:
        xmlrpc.client.loads(answer.body)
    assert caught.value.faultCode == code
    assert says in caught.value.faultString
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_failure_inside_is_logged_and_hidden(caplog):
    broken = latest(large(), snapshot=b'{"schema":1,"sample_age_seconds":null,"secret/path":')
    with client(broken) as proxy, pytest.raises(xmlrpc.client.Fault) as caught:
        proxy.snapshot()
    assert caught.value.faultCode == -32603
    assert "its log says why" in caught.value.faultString
    assert "secret" not in caught.value.faultString
    assert "the method snapshot failed" in caplog.text


# ---- Requests that are no calls. ----


@pytest.mark.parametrize("path", ["/", "/RPC2"])
def test_both_usual_paths_take_calls(path):
    with agent(latest(large())) as port:
        assert b"<string>" in post(port, call("gpu_stats"), path).body


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status", "says"),
    [
        ("GET", "/", {}, None, 405, "the agent answers POST /RPC2"),
        ("PUT", "/RPC2", {}, b"", 405, "the agent answers POST /RPC2"),
        ("POST", "/snapshot.json", {}, b"", 405, "GET /snapshot.json"),
        ("GET", "/etc/passwd", {}, None, 404, "there is nothing at this address"),
        ("POST", "/rpc", {"Content-Type": "text/xml"}, b"", 404, "there is nothing"),
        ("POST", "/", {"Content-Type": "text/plain"}, b"x", 415, "Content-Type: text/xml"),
        ("POST", "/", {}, b"x", 415, "Content-Type: text/xml"),
        ("POST", "/", {"Content-Type": "text/xml", "Content-Encoding": "gzip"}, b"x", 415,
         "without Content-Encoding"),
        ("POST", "/", {"Content-Type": "text/xml", "Origin": "http://evil.example"}, b"x", 403,
         "for programs"),
        ("POST", "/", {"Content-Type": "text/xml"}, b"x" * 65537, 413, "larger than 65536"),
    ],
)  # fmt: skip
def test_a_request_that_is_not_taken_is_told_why(method, path, headers, body, status, says):
    with agent(latest(large())) as port:
        answer = get(port, path, method, body, **headers)
    assert answer.status == status
    assert says in answer.body.decode()
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not xml",
        b"<!DOCTYPE x><methodCall><methodName>version</methodName></methodCall>",
        call("version")[:-20],
        b"<methodCall>" * 3000,
        b"\x00" * 1000,
    ],
)
def test_a_body_that_is_no_call_is_a_fault(body, caplog):
    with agent(latest(large())) as port:
        answer = post(port, body)
        assert answer.status == 200
        with pytest.raises(xmlrpc.client.Fault) as caught:
            xmlrpc.client.loads(answer.body)
        assert caught.value.faultCode == -32700
        assert post(port, call("version")).status == 200
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# ---- Who may ask. ----


def test_with_a_token_only_its_bearers_are_answered():
    tokens = Tokens(["new", "old"])
    with agent(latest(large()), tokens) as port:
        for user in ("gpumon:new@", "x:old@"):
            with xmlrpc.client.ServerProxy(f"http://{user}127.0.0.1:{port}") as proxy:
                assert len(proxy.gpus()) == 8
        assert get(port, "/snapshot.json", Authorization="Bearer new").status == 200
        for user in ("", "gpumon:wrong@", "new:@"):
            with (
                xmlrpc.client.ServerProxy(f"http://{user}127.0.0.1:{port}") as proxy,
                pytest.raises(xmlrpc.client.ProtocolError) as caught,
            ):
                proxy.gpus()
            assert (caught.value.errcode, caught.value.errmsg) == (401, "Unauthorized")
        for path in ("/snapshot.json", "/no/such", "/RPC2"):
            refused = get(port, path)
            assert refused.status == 401
            assert refused.headers["WWW-Authenticate"] == 'Basic realm="gpumon"'
            assert refused.headers["X-Content-Type-Options"] == "nosniff"
            assert b"a token is needed, and none came" in refused.body
            wrong = get(port, path, Authorization="Bearer wrong")
            assert wrong.body.startswith(b"wrong token: the one that came is none of those in ")


def test_with_a_token_any_name_of_the_host_will_do():
    with agent(latest(large()), Tokens(["t"])) as port:
        asked = get(port, "/snapshot.json", Authorization="Bearer t", Host="gpus.example")
    assert asked.status == 200


def test_without_a_token_a_foreign_name_is_turned_away():
    with agent(latest(large())) as port:
        for name in ("evil.example", f"evil.example:{port}"):
            refused = get(port, "/snapshot.json", Host=name)
            assert refused.status == 421
            assert b"this name is not one of this machine" in refused.body
            assert post(port, call("gpus"), Host=name).status == 421
        for name in ("localhost", f"127.0.0.1:{port}", "[::1]"):
            assert get(port, "/snapshot.json", Host=name).status == 200


def test_no_answer_opens_the_agent_to_other_origins():
    with agent(latest(large())) as port:
        answers = [
            get(port, "/snapshot.json", Origin="http://evil.example"),
            get(port, "/snapshot.json", "OPTIONS", Origin="http://evil.example"),
            post(port, call("gpus"), Origin="http://evil.example"),
        ]
    for answer in answers:
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


# ---- The other routes. ----


def test_healthz_is_open_and_tells_only_whether_samples_come():
    with agent(latest(large()), Tokens(["t"])) as port:
        answer = get(port, "/healthz", Host="any.example")
        assert answer.status == 200
        told = json.loads(answer.body)
        assert list(told) == ["ok", "sample_age_seconds"]
        assert told["ok"] is True
    with agent(latest(large(), age=26.0)) as port:
        answer = get(port, "/healthz")
        assert answer.status == 503
        assert json.loads(answer.body)["ok"] is False
    with agent(latest(None)) as port:
        assert json.loads(get(port, "/healthz").body) == {"ok": False, "sample_age_seconds": None}


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
def test_the_snapshot_is_json_compressed_for_who_accepts_it(accepted, compressed):
    with agent(latest(large())) as port:
        answer = get(port, "/snapshot.json", Accept_Encoding=accepted)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert answer.headers["Cache-Control"] == "no-store"
    assert (answer.headers["Content-Encoding"] == "gzip") is compressed
    body = gzip.decompress(answer.body) if compressed else answer.body
    assert decode_snapshot(body).gpus == large().gpus
    assert decode_snapshot(body).sample_age_seconds >= 1.0


def test_head_is_answered_like_get_without_the_body():
    with agent(latest(large())) as port:
        answer = get(port, "/snapshot.json", "HEAD")
    assert answer.status == 200
    assert answer.body == b""
    assert int(answer.headers["Content-Length"]) > 10_000


def test_the_stock_client_works_over_tls_and_with_a_certificate_of_its_own(tmp_path):
    authority = issue(tmp_path, "authority")
    server, mine = issue(tmp_path, "server", authority), issue(tmp_path, "mine", authority)
    tls = TlsConfig(cert=server.cert, key=server.key, ca=authority.cert)
    context = ssl.create_default_context(cafile=authority.cert)
    with agent(latest(large()), Tokens(["t"]), tls) as port:
        url = f"https://gpumon:t@127.0.0.1:{port}"
        with (
            xmlrpc.client.ServerProxy(url, context=context) as proxy,
            pytest.raises(OSError),  # noqa: PT011  an alert or a reset, as it happens
        ):
            proxy.gpus()
        context.load_cert_chain(mine.cert, mine.key)
        with xmlrpc.client.ServerProxy(url, context=context) as proxy:
            assert len(proxy.gpus()) == 8


# ---- nvgpu's address. ----


def test_nvgpus_pages_can_ask_the_agent() -> None:
    with agent(latest(host(busy(0), gpu(1), unknown(2)))) as port:
        reply = get(port, "/gpu_status")
        told = json.loads(reply.body)
    assert reply.headers["Content-Type"] == "application/json"
    assert [one["is_available"] for one in told["gpus"]] == [False, True, False]
    assert told["gpus"][0]["users"] == "alice"


def test_nothing_is_available_in_a_reading_that_is_too_old() -> None:
    old = msgspec.structs.replace(latest(host(gpu(0))), taken_at=time.monotonic() - 3600)
    with agent(old) as port:
        [one] = json.loads(get(port, "/gpu_status").body)["gpus"]
    assert one["is_available"] is False
    assert one["memory"] == {"total": None, "used": None, "free": None}
    assert "no new sample" in one["error"]


@pytest.mark.parametrize("name", [b"Authorization", b"Accept-Encoding", b"Content-Type", b"Origin"])
def test_a_header_of_any_bytes_is_no_failure_inside(name: bytes, tmp_path) -> None:
    secret = tmp_path / "token"
    secret.write_text("a" * 32 + "\n")
    secret.chmod(0o600)
    with agent(latest(host(gpu(0))), Tokens.load(str(secret))) as port:
        raw = socket.create_connection(("127.0.0.1", port), timeout=10)
        with raw:
            head = b"POST /RPC2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n"
            if name != b"Authorization":
                head += b"Authorization: Bearer " + b"a" * 32 + b"\r\n"
            raw.sendall(head + name + b": Bearer \xff\xfe\r\n\r\n")
            status = int(raw.recv(200).split()[1])
    assert 400 <= status < 500
