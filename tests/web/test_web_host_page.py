from __future__ import annotations

import pytest
from web_client import get, page, site
from web_cluster import NOW, cluster, gpu, holder, host, simulated

from gpumon.model import Gpu, HostInfo, HostSnapshot, Process
from gpumon.web.cells import cell, text_mark
from gpumon.web.holding import held_on
from gpumon.web.readings import _ROWS
from gpumon.web.words import listed, numbers

TRAINING = Process(
    pid=4242,
    kinds=["compute", "graphics"],
    user="alice",
    program="python train.py",
    command="python train.py --token=hunter2",
    gpu_memory_used_mib=70_000,
    sm_utilization_percent=71.0,
    started_at=NOW - 7260,
    runtime_seconds=7260.0,
    cpu_percent=398.0,
    memory_used_mib=20_480,
    state="running",
    job="Slurm 99",
    container="docker 1a2b",
    note="a remark",
)


def _app():
    reading = Gpu(
        index=0,
        uuid="GPU-1234",
        name="NVIDIA H100",
        utilization_percent=71,
        memory_total_mib=81_920,
        memory_used_mib=70_000,
        clock_event_reasons=["sw_power_cap"],
        ecc_volatile_uncorrected=0,
        mig_mode=False,
        mig_mode_pending=True,
        processes=[TRAINING],
    )
    detail = HostSnapshot(
        hostname="gpu-1",
        host=HostInfo(
            cpu_percent=12.4,
            cpu_count=64,
            load_1m=3.25,
            memory_total_mib=1_024_000,
            memory_available_mib=512_000,
            disk_total_mib=1_000_000,
            disk_free_mib=0,
            uptime_seconds=90_000,
        ),
        errors=["The clock of this host is wrong."],
        gpus=[reading],
    )
    shown = host("gpu-1", [gpu(0, "busy")], labels={"room": "b12"})
    return site(cluster([shown]), lambda _: detail)


def test_the_process_table_has_what_earlier_tools_showed():
    shown = page(_app(), "/host/gpu-1")
    heading = next(row for row in shown.rows if "PID" in row)
    assert heading[:5] == ["GPU", "User", "Memory", "Time", "PID"]
    assert next(row for row in shown.rows if "4242" in row) == [
        "0", "alice", "68.4G", "2h01", "4242", "python train.py", "compute, graphics", "71%",
        "398%", "20.0G", "running", "Slurm 99, docker 1a2b, a remark",
    ]  # fmt: skip


def test_the_line_of_the_host_is_there():
    words = page(_app(), "/host/gpu-1").words
    for part in (
        "Address gpu-1:8043",
        "room b12",
        "Driver 570.133.20",
        "CUDA 12.8",
        "CPU 12% of 64 cores",
        "Load 1, 5, 15 min 3.2 - -",
        "RAM in use 500.0G of 1000.0G",
        "Disk in use (/) 976.6G of 976.6G",
        "Up for 25h00",
        "The clock of this host is wrong.",
    ):
        assert part in words


def test_every_reading_of_the_model_has_a_row():
    apart = {"index", "error", "lost", "unknown", "unified_memory", "mig", "processes"}
    apart |= {"health", "hints"}  # lists of their own
    runs = {"unused_since", "free_since", "held_since", "fault_since", "watched_since"}
    assert {field for _, field, _ in _ROWS} == set(
        Gpu.__struct_fields__
    ) - apart - runs  # the state says those
    shown = page(_app(), "/host/gpu-1")
    assert shown.row("UUID") == ["UUID", "GPU-1234"]
    assert shown.row("Clock event reasons")[1] == "sw power cap"
    assert shown.row("ECC uncorrected, since reset")[1] == "0"
    assert shown.row("MIG mode")[1] == "off"
    assert shown.row("MIG mode after reset")[1] == "on"
    assert shown.row("Encoder")[1] == "-"


@pytest.mark.parametrize("name", [f"gpu-0{number}" for number in range(1, 9)])
def test_every_kind_of_host_has_a_page(name):
    status, details, _ = simulated(8)
    shown = page(site(status, details.get), f"/host/{name}")
    state = next(one for one in status.hosts if one.name == name)
    assert f"{name} {state.state}" in shown.words
    for one in state.gpus:
        assert shown.row(str(one.index))


def test_mig_instances_have_rows_of_their_own():
    status, details, _ = simulated(3)
    shown = page(site(status, details.get), "/host/gpu-03")
    instances = [row for row in shown.rows if row[0][:4] == "MIG " and row[0][4:].isdigit()]
    assert [row[1] for row in instances if "10gb" in row[1]] == ["1g.10gb"] * 9
    assert len(instances) == 11
    assert any(row[0].startswith("1 MIG ") for row in shown.rows), "nor is there a process of one"


@pytest.mark.parametrize(
    ("percent", "mark", "level"),
    [(0, "0", 0), (4, "4", 0), (5, "5", 0), (6, "6", 1), (97, "97", 10), (100, "100", 10)],
)
def test_a_busy_cell_is_as_full_as_the_gpu_is_used(percent, mark, level):
    assert cell(gpu(0, "busy", utilization_percent=percent)) == ("busy", mark, level)


@pytest.mark.parametrize(
    ("state", "drawn", "written"),
    [
        ("free", "", "__"),
        ("idle", "z", "z"),
        ("fault", "!", "!!"),
        ("unknown", "?", "?"),
        ("drained", "–", "--"),
    ],
)
def test_only_a_busy_cell_holds_a_number(state, drawn, written):
    one = gpu(0, state, utilization_percent=88)
    assert cell(one) == (state, drawn, 0)
    assert text_mark(one) == written


def test_who_holds_most_of_a_host_comes_first():
    held = held_on(
        host(
            "h",
            [
                gpu(0, "busy", holders=[holder("bob"), holder(None)]),
                gpu(1, "busy", holders=[holder("eve", hours=9), holder("bob", hours=5)]),
                gpu(2, "busy", holders=[holder("eve", hours=None)]),
                gpu(3, "free", holders=[holder("gdm", graphics_only=True)]),
                gpu(4, "busy", holders=[holder("gdm", graphics_only=True)]),
                gpu(5, "busy", holders=[holder("bob"), holder("gdm", graphics_only=True)]),
            ],
        )
    )
    assert [(one.user, one.gpus) for one in held] == [
        ("bob", [0, 1, 5]),
        ("eve", [1, 2]),
        ("gdm", [4]),
        (None, [0]),
    ]
    assert held[1].since == NOW - 9 * 3600


def test_words_are_joined_as_people_say_them():
    assert [listed([]), listed(["0"]), listed(["0", "5"]), listed(["0", "3", "5"])] == [
        "",
        "0",
        "0 and 5",
        "0, 3 and 5",
    ]
    assert numbers([4, 0, 1]) == "0,1,4"


def test_the_user_page_says_where_and_since_when():
    gpus = [gpu(0, "busy"), gpu(1, "idle", holders=[holder("alice", hours=8, pids=[7, 9])])]
    app = site(cluster([host("gpu-1", gpus), host("gpu-2", [gpu(3, "busy")])]))
    shown = page(app, "/user/alice")
    assert "alice holds 3 GPUs on 2 hosts, 1 of them idle." in shown.words
    row = next(row for row in shown.rows if "7, 9" in row)
    assert row == [
        *("gpu-1", "1", "H100 80G", "idle 2h00", "at most 8h00"),
        *("0%", "68.4G of 80.0G", "python", "7, 9"),
    ]


def test_what_was_held_on_a_silent_host_is_not_counted_as_held():
    last = gpu(0, "unknown", holders=[holder("mei")])
    app = site(cluster([host("gpu-1", [last], state="down", reason="no answer")]))
    shown = page(app, "/user/mei")
    assert "mei holds no GPU, as far as the hosts answer." in shown.words
    assert next(row for row in shown.rows if row[0].startswith("gpu-1"))[0] == "gpu-1 down"
    assert get(app, "/user/mei").code == 200


def test_a_gpu_tells_why_its_clocks_are_lowered_and_which_program_holds_it():
    shown = page(_app(), "/host/gpu-1")
    heading = next(row for row in shown.rows if "Clocks lowered by" in row)
    row = dict(zip(heading, shown.row("0"), strict=True))
    assert row["Clocks lowered by"] == "sw power cap"
    assert row["Held by: user, program, memory, since"].split() == [
        "alice", "python", "68.4G", "at", "most", "3h00",
    ]  # fmt: skip
    assert "alice python 68.4G <=3h00; clocks: sw power cap" in " ".join(
        get(_app(), "/host/gpu-1", accept="*/*").text.split()
    )


def test_clocks_that_are_not_known_are_not_called_full():
    app = site(cluster([host("gpu-1", [gpu(0)])]), lambda _: None)
    assert page(app, "/host/gpu-1").row("0")[7] == "-"
    read = HostSnapshot(gpus=[Gpu(index=0, clock_event_reasons=[])])
    app = site(cluster([host("gpu-1", [gpu(0)])]), lambda _: read)
    assert page(app, "/host/gpu-1").row("0")[7] == "none"
