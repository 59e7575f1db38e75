"""What readers of vesta, nvgpu and web-gpu-monitor get: their forms, and no unknown as a number."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
from web_client import get, site
from web_cluster import NOW, cluster, every_state, gpu, host

from gpumon.agent.nvgpu import gpu_status
from gpumon.cluster.status import ClusterStatus
from gpumon.config import Config, HostEntry
from gpumon.model import Gpu, HostSnapshot, MigInstance, Process
from gpumon.web.app import make_app
from gpumon.web.earlier.load_csv import HEADER, load_csv
from gpumon.web.earlier.static_page import static_page

VESTA_GPU = {
    "device_num",
    "uuid",
    "gpu_name",
    "temperature",
    "total_memory",
    "available_memory",
    "used_memory",
    "gpu_volatile",
    "timestamp",
    "processes",
}
NVGPU_DEVICE = {
    "type",
    "is_available",
    "pids",
    "users",
    "running_since",
    "utilization",
    "memory",
    "clock_mhz",
    "temperature",
    "cmd",
}


def process(pid: int = 4242, **fields: Any) -> Process:
    values: dict[str, Any] = {
        "kinds": ["compute"],
        "user": "alice",
        "program": "python train.py",
        "gpu_memory_used_mib": 70_000,
        "started_at": NOW - 7200,
    }
    return Process(pid=pid, **{**values, **fields})


def read_gpu(index: int, *processes: Process, **fields: Any) -> Gpu:
    values: dict[str, Any] = {
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "utilization_percent": 97 if processes else 0,
        "memory_utilization_percent": 40 if processes else 0,
        "memory_total_mib": 81_559,
        "memory_used_mib": 70_010 if processes else 0,
        "memory_free_mib": 11_000 if processes else 81_000,
        "unattributed_mib": 0,
        "temperature_celsius": 64,
        "sm_clock_mhz": 1980,
        "processes": list(processes),
    }
    return Gpu(index=index, **{**values, **fields})


BLIND = Gpu(index=2, uuid="GPU-2", name="NVIDIA H100 80GB HBM3", error="the GPU is lost")


def snapshot(name: str) -> HostSnapshot | None:
    """The reading behind gpu-1 (one busy, one free, one lost GPU) and the old one of gpu-4."""
    if name not in ("gpu-1", "gpu-4"):
        return None
    return HostSnapshot(hostname=name, time=NOW, gpus=[read_gpu(0, process()), read_gpu(1), BLIND])


def earlier(status: ClusterStatus | None = None, own: str | None = None) -> Any:
    if own is None:
        return site(status or every_state(), snapshot)
    config = Config(hosts=[HostEntry(name=own, address="self", source="self")])
    return make_app(status=status or every_state, detail=snapshot, config=config)  # type: ignore[arg-type]


def answer(path: str, app: Any = None) -> Any:
    return json.loads(get(app or earlier(), path, accept="*/*").body)


# vesta's JSON


def test_states_have_vestas_keys_and_types() -> None:
    told = answer("/states/")
    assert list(told) == ["gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5"]
    one = told["gpu-1"]
    assert {"data", "ip_address", "status"} <= set(one)
    assert one["status"] == "running"
    [reading] = one["data"]
    assert reading["timestamp"] == "01/05/2026 08:02:03"
    first = reading["gpu_data"]["gpu:0"]
    assert set(first) >= VESTA_GPU
    assert first["timestamp"] == "2026/01/05 08:02:03.000"
    assert first["used_memory"] == 70_010
    assert first["gpu_volatile"] == 97
    assert first["processes"] == [
        {"pid": "4242", "name": "python train.py", "user": "alice", "used_memory": 70_000}
    ]


def test_a_number_that_is_not_known_is_null_in_states_and_never_zero() -> None:
    lost = answer("/states/gpu-1/")["data"][0]["gpu_data"]["gpu:2"]
    for key in ("temperature", "total_memory", "available_memory", "used_memory", "gpu_volatile"):
        assert lost[key] is None
    assert lost["processes"] is None
    assert lost["error"] == "the GPU is lost"


def test_an_old_reading_does_not_pass_for_a_new_one() -> None:
    told = answer("/states/")
    assert told["gpu-4"]["status"] == "down"
    assert told["gpu-4"]["data"][0]["gpu_data"] == {}
    assert told["gpu-4"]["reason"] == "gpu-4:8043 refused the connection"
    assert told["gpu-5"]["status"] == "waiting for re-uplink"
    assert told["gpu-5"]["data"] == [{"gpu_data": {}, "timestamp": "no entry"}]


@pytest.mark.parametrize(("query", "readings"), [("", 1), ("?fetch_num=0", 0), ("?fetch_num=9", 1)])
def test_fetch_num_is_bounded_by_what_there_is(query: str, readings: int) -> None:
    assert len(answer(f"/states/gpu-1/{query}")["data"]) == readings


@pytest.mark.parametrize("bad", ["-1", "many", "1.5", "9" * 500, "%00"])
def test_a_bad_fetch_num_is_a_sentence_in_vestas_form(bad: str) -> None:
    for path in ("/states/", "/states/gpu-1/"):
        reply = get(earlier(), f"{path}?fetch_num={bad}", accept="*/*")
        told = json.loads(reply.body)
        assert (reply.code, told["status"], told["status_code"]) == (400, "ERROR", 400)
        assert "fetch_num" in told["message"]
        assert len(told["message"]) < 120


def test_an_unknown_host_is_an_error_in_vestas_form() -> None:
    reply = get(earlier(), "/states/nix/", accept="*/*")
    assert reply.code == 404
    told = json.loads(reply.body)
    assert told == {
        "status": "ERROR",
        "status_code": 404,
        "message": "there is no host 'nix' here",
    }


# vesta's text


@pytest.mark.parametrize(
    "path",
    ["/?term=true", "/?term=true&detail=true", "/gpu_table?term=true", "/states/gpu-1/?term=1"],
)
def test_text_for_the_terminal_is_ascii_and_fits_80_columns(path: str) -> None:
    hostile = host("g" * 300 + "Ä\u202e", [gpu(0)], reason="ü" * 900)
    status = cluster([*every_state().hosts, hostile])
    reply = get(earlier(status), path, accept="*/*")
    assert reply.headers["Content-Type"].startswith("text/plain")
    lines = reply.body.decode("ascii").splitlines()
    assert max(map(len, lines)) <= 80
    assert any("H100" in line for line in lines)


def test_the_summary_shows_a_dash_where_nothing_is_known() -> None:
    lines = get(earlier(), "/?term=true", accept="*/*").text.splitlines()
    assert lines[0].split() == ["host", "gpu", "memory", "usage", "volat.", "temp."]
    row = next(line for line in lines if line.startswith("gpu-1"))
    assert row.split()[-5:] == ["70010", "/", "81559", "97%", "64C"]
    lost = next(line for line in lines if " 2:NVIDIA" in line)
    assert lost.split()[-5:] == ["-", "/", "-", "-", "-"]
    assert any(line.startswith("gpu-4") and "[down]" in line for line in lines)


@pytest.mark.parametrize("word", ["false", "0", "no", ""])
def test_term_false_means_false(word: str) -> None:
    assert get(earlier(), f"/?term={word}").headers["Content-Type"].startswith("text/html")


def test_pages_of_the_summary_have_eight_hosts() -> None:
    many = cluster([host(f"h-{number:02}", [gpu(0)]) for number in range(16)])
    app = earlier(many)
    for page, first, last in ((1, "h-00", "h-07"), (2, "h-08", "h-15")):
        names = re.findall(r"^h-\d\d", get(app, f"/?term=true&page={page}").text, re.M)
        assert (names[0], names[-1], len(names)) == (first, last, 8)
    assert "the pages are 1 to 2" in get(app, "/?term=true&page=3").text
    assert get(app, "/?term=true&page=0").code == 400
    assert get(app, "/?term=true&page=x").code == 400


def test_the_boxes_name_processes_and_say_where_they_are_not_known() -> None:
    text = get(earlier(), "/?term=true&detail=true", accept="*/*").text
    assert "`- python train.py  70000 MiB  alice" in text
    assert "its processes are not known" in text
    assert "gpu-4:8043 refused the connection" in text


def test_the_table_for_a_browser_is_the_page_itself() -> None:
    for path, there in (("/gpu_table", "./"), ("/gpu_table/", "../")):
        reply = get(earlier(), path)
        assert (reply.code, reply.headers["Location"]) == (302, there)


# nvgpu's JSON


def test_cluster_status_is_a_list_in_order_and_failed_hosts_say_why() -> None:
    told = answer("/cluster_status")
    assert [one["hostname"] for one in told] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4", "gpu-5"]
    busy, free, lost = told[0]["gpus"]
    assert set(busy) >= NVGPU_DEVICE
    assert (busy["is_available"], free["is_available"], lost["is_available"]) == (
        False,
        True,
        False,
    )
    assert (busy["pids"], busy["users"], busy["running_since"]) == ("4242", "alice", "2h00 ago")
    assert busy["memory"] == {"total": 85520809984, "used": 73410805760, "free": 11534336000}
    assert lost["utilization"] is None
    assert told[3] == {"error": "gpu-4:8043 refused the connection", "hostname": "gpu-4"}


@pytest.mark.parametrize(
    "blind",
    [
        read_gpu(0, processes=None),
        read_gpu(0, unattributed_mib=4000),
        read_gpu(0, error="the driver timed out"),
        read_gpu(0, mig_mode=True, mig=[MigInstance(index=0, processes=None)]),
        read_gpu(0, process(user=None)),
    ],
)
def test_what_may_be_held_is_not_available(blind: Gpu) -> None:
    [device] = gpu_status(HostSnapshot(hostname="h", time=NOW, gpus=[blind]))["gpus"]
    assert device["is_available"] is False


@pytest.mark.parametrize(
    "out_of_use",
    [
        read_gpu(0, ecc_volatile_uncorrected=2),
        read_gpu(0, lost=True),
        read_gpu(0, clock_event_reasons=["hw_thermal_slowdown"]),
        read_gpu(0, compute_mode="prohibited"),
    ],
)
def test_a_gpu_that_is_broken_or_closed_is_not_available(out_of_use: Gpu) -> None:
    [device] = gpu_status(HostSnapshot(hostname="h", time=NOW, gpus=[out_of_use]))["gpus"]
    assert device["is_available"] is False


@pytest.mark.parametrize(
    ("state", "word"), [("drained", "drained"), ("fault", "broken"), ("unknown", "not known")]
)
def test_what_the_page_calls_out_of_use_no_old_form_calls_free(state: str, word: str) -> None:
    """`drained` is the configuration's word: the reading itself shows a free GPU."""

    def detail(_: str) -> HostSnapshot:
        return HostSnapshot(hostname="h", time=NOW, gpus=[read_gpu(0)], gpu_count=1)

    shown = cluster([host("h", [gpu(0, state)])])
    [told] = answer("/cluster_status", site(shown, detail))
    assert told["gpus"][0]["is_available"] is False
    page = static_page(shown, detail)
    assert re.findall(r'<tr class="(\w+)" title="([\w ]+),', page) == [("unknown", word)]
    [row] = csv.DictReader(io.StringIO(load_csv(shown, detail)))
    assert row["username"] == "?"


def test_a_host_whose_gpus_nobody_knows_is_an_error_and_not_empty() -> None:
    def detail(_: str) -> HostSnapshot:
        return HostSnapshot(hostname="h", time=NOW, errors=["No driver answers."])

    told = answer("/cluster_status", site(cluster([host("h", [])]), detail))
    assert told == [{"error": "No driver answers.", "hostname": "h"}]
    assert gpu_status(detail("h"))["error"] == "No driver answers."


def test_gpu_status_is_this_machine_where_the_server_reads_it() -> None:
    assert answer("/gpu_status", earlier(own="gpu-1"))["hostname"] == "gpu-1"
    reply = get(earlier(), "/gpu_status", accept="*/*")
    assert reply.code == 404
    assert b"/cluster_status" in reply.body


# web-gpu-monitor's files


def rows(status: ClusterStatus) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(load_csv(status, snapshot))))


def test_load_data_csv_has_the_known_header_and_a_user_only_where_one_is_known() -> None:
    assert load_csv(every_state(), snapshot).partition("\n")[0] == (
        ",load,load_mem,gpu_idx,gpu_name,gpu_uuid,hostname,username"
    )
    assert len(HEADER) == 8
    told = rows(every_state())
    assert [row["hostname"] for row in told] == ["gpu-1"] * 3  # the others have no fresh reading
    assert [(row["load"], row["load_mem"], row["username"]) for row in told] == [
        ("97", "40", "alice"),
        ("0", "0", ""),
        ("", "", "?"),
    ]


def test_no_name_becomes_a_formula_of_a_spreadsheet() -> None:
    def detail(_: str) -> HostSnapshot:
        evil = process(user="=HYPERLINK(1)")
        return HostSnapshot(hostname="h", time=NOW, gpus=[read_gpu(0, evil, name="@SUM(A1)")])

    [row] = csv.DictReader(io.StringIO(load_csv(cluster([host("h", [gpu(0)])]), detail)))
    assert row["username"] == "'=HYPERLINK(1)"
    assert row["gpu_name"] == "'@SUM(A1)"


@pytest.mark.parametrize(
    ("shown", "colour"),
    [
        (read_gpu(0), "free"),
        (read_gpu(0, process()), "taken"),
        (read_gpu(0, utilization_percent=5), "taken"),
        (read_gpu(0, memory_utilization_percent=3), "taken"),
        (read_gpu(0, memory_used_mib=40_000), "taken"),
        (read_gpu(0, utilization_percent=None), "unknown"),
        (read_gpu(0, processes=None), "unknown"),
        (read_gpu(0, memory_used_mib=None), "unknown"),
        (BLIND, "unknown"),
    ],
)
def test_green_takes_a_reading_that_says_so(shown: Gpu, colour: str) -> None:
    def detail(_: str) -> HostSnapshot:
        return HostSnapshot(hostname="h", time=NOW, gpus=[shown])

    page = static_page(cluster([host("h", [gpu(0)])]), detail)
    assert re.findall(r'<tr class="(\w+)"', page) == [colour]


def test_the_static_page_escapes_names_and_tells_silent_hosts() -> None:
    def detail(_: str) -> HostSnapshot:
        evil = process(user="<script>alert(1)</script>")
        return HostSnapshot(hostname="h", time=NOW, gpus=[read_gpu(0, evil, name='"><b>')])

    page = static_page(cluster([host("h", [gpu(0)]), every_state().hosts[3]]), detail)
    assert "<script" not in page
    assert "<b>" not in page
    assert "gpu-4:8043 refused the connection" in page
