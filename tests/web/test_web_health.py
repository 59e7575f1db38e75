"""What the page of a host says about the health of its GPUs."""

from __future__ import annotations

from web_client import page, site
from web_cluster import HOUR, NOW, cluster, gpu, host

from gpumon.model import Gpu, HealthEvent, HostSnapshot
from gpumon.units import clock

FALLEN = HealthEvent(
    kind="xid",
    code=79,
    level="fault",
    text="XID 79: the GPU has fallen off the bus",
    advice="Power-cycle the host",
    first_at=NOW - 3 * HOUR,
    last_at=NOW - HOUR,
    count=3,
    source="driver, kernel log",
)
OVER = HealthEvent(
    kind="row_remap",
    level="warning",
    text="bad memory rows wait for a reset",
    first_at=NOW - 5 * HOUR,
    last_at=NOW - 4 * HOUR,
    count=1,
    ended_at=NOW - 2 * HOUR,
    source="driver",
)


def _host_page(*gpus):
    shown = host("gpu-1", [gpu(one.index) for one in gpus])
    return page(site(cluster([shown]), lambda _: HostSnapshot(gpus=list(gpus))), "/host/gpu-1")


def test_each_trouble_of_a_gpu_has_a_row_with_its_times_and_what_to_do():
    shown = _host_page(Gpu(index=0), Gpu(index=5, health=[FALLEN, OVER]))
    first, last = clock(FALLEN.first_at, NOW), clock(FALLEN.last_at, NOW)
    assert next(row for row in shown.rows if FALLEN.text in row) == [
        "5", "fault", FALLEN.text, "3", first, last, "goes on",
        "Power-cycle the host", "driver, kernel log",
    ]  # fmt: skip
    ended = next(row for row in shown.rows if OVER.text in row)
    assert ended[6:] == [f"ended {clock(OVER.ended_at, NOW)}", "", "driver"]


def test_hints_are_listed_and_gpus_with_the_same_hint_share_a_line():
    hint = "persistence mode is off"
    words = _host_page(*(Gpu(index=n, hints=[hint]) for n in (0, 3)), Gpu(index=4)).words
    assert f"Hints GPU 0,3: {hint}" in words


def test_without_trouble_nothing_is_claimed_about_health():
    assert "Health" not in _host_page(Gpu(index=0)).words
    unknown = _host_page(Gpu(index=0, unknown={"health": "neither source tells XIDs"}))
    assert "Health, GPU 0: neither source tells XIDs" in unknown.words


def test_counters_of_health_are_readings_and_unknown_ones_are_dashes():
    shown = _host_page(
        Gpu(
            index=0,
            remapped_rows_corrected=0,
            remapped_rows_pending=False,
            retired_pages_pending=True,
            recovery_action="drain_and_reset",
            utilization_5m_percent=0.0,
        ),
        Gpu(index=1),
    )
    assert shown.row("Memory rows replaced, corrected errors")[1:] == ["0", "-"]
    assert shown.row("Memory rows wait for a reset")[1:] == ["no", "-"]
    assert shown.row("Memory pages wait for a reset")[1:] == ["yes", "-"]
    assert shown.row("Driver asks for")[1:] == ["drain and reset", "-"]
    assert shown.row("Utilization, mean of 5 min")[1:] == ["0%", "-"]
    assert shown.row("Utilization, mean of 30 min")[1:] == ["-", "-"]
    assert "Missing since" not in shown.words


def test_a_missing_gpu_says_since_when():
    shown = _host_page(Gpu(index=0), Gpu(index=1, missing_since=NOW - HOUR))
    assert shown.row("Missing since")[1:] == ["-", clock(NOW - HOUR)]


def test_memory_that_no_process_explains_stands_beside_the_holders():
    gpus = [gpu(n, "busy") for n in range(3)]
    shown = host("gpu-1", gpus)
    detail = HostSnapshot(
        gpus=[
            Gpu(index=one.index, uuid=one.uuid, unattributed_mib=mib)
            for one, mib in zip(shown.gpus, (12_595, 0, None), strict=True)
        ]
    )
    read = page(site(cluster([shown]), lambda _: detail), "/host/gpu-1")
    assert read.row("0")[-1].endswith("unattributed 12.3G")
    assert "unattributed" not in read.row("1")[-1] + read.row("2")[-1]
