"""curl gets text from every address; the help is there; the script is small and careful."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from web_client import get, page, site
from web_cluster import cluster, every_state, gpu, holder, host, simulated

import gpumon.web
from gpumon.cluster.query import parse, select
from gpumon.config import Limits
from gpumon.model import Gpu, HostSnapshot, Process
from gpumon.states import GPU_STATES
from gpumon.web.bars import bar
from gpumon.web.help_page import help_page

SCRIPT = (Path(gpumon.web.__file__).parent / "static" / "gpumon.js").read_text()


@pytest.fixture(scope="module")
def simulated_site():
    status, details, _ = simulated(8)
    return site(status, details.get), status


def test_curl_gets_text_from_a_host_and_a_browser_its_page(simulated_site):
    app, status = simulated_site
    for one in status.hosts:
        reply = get(app, f"/host/{one.name}", accept="*/*")
        assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert "Accept" in reply.headers["Vary"].split(", ")
        for line in reply.text.splitlines():
            assert line.isascii()
            assert len(line) <= 100
        html = get(app, f"/host/{one.name}")
        assert html.headers["Content-Type"] == "text/html; charset=utf-8"
        assert html.headers["Etag"] != reply.headers["Etag"]
        as_json = get(app, f"/host/{one.name}", accept="application/json")
        assert as_json.body == get(app, f"/host/{one.name}.json").body


def test_the_text_of_a_host_lists_its_gpus_and_processes(simulated_site):
    app, status = simulated_site
    text = get(app, "/host/gpu-01", accept="*/*").text
    assert text.startswith("SIMULATED")
    held = next(one for one in status.hosts if one.name == "gpu-01").gpus[0].holders[0]
    lines = text.splitlines()
    assert any(line.startswith("0 ") and "busy" in line and held.user in line for line in lines)
    assert any(str(held.pids[0]) in line and held.program in line for line in lines)


def test_the_text_of_a_host_never_guesses():
    app = site(every_state())
    down, never = (get(app, f"/host/{name}", accept="*/*").text for name in ("gpu-4", "gpu-5"))
    assert "gpu-4  down, reading 14m old" in down
    assert "refused the connection" in down
    assert "All values below are the last ones known." in down
    assert "gpu-5  never, no reading yet" in never
    assert "The processes of this host are not known" in never
    assert "No process" not in never
    unread = HostSnapshot(gpus=[Gpu(index=0, processes=None, error="lost")], gpu_count=1)
    text = get(site(every_state(), lambda _: unread), "/host/gpu-1", accept="*/*").text
    assert "The processes of GPU 0 are not known: lost." in text
    empty = HostSnapshot(gpus=[Gpu(index=0, processes=[])], gpu_count=1)
    text = get(site(every_state(), lambda _: empty), "/host/gpu-1", accept="*/*").text
    assert "No process on any GPU." in text


def test_curl_gets_text_about_a_user():
    app = site(every_state())
    reply = get(app, "/user/bob", accept="*/*")
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    lines = reply.text.splitlines()
    assert lines[0] == "bob holds 2 GPUs on 1 host, 1 of them idle."
    assert any(line.startswith("gpu-1") and "idle >=2h00" in line for line in lines)
    assert get(app, "/user/zoe", accept="*/*").text == (
        "zoe holds no GPU, as far as the hosts answer.\n"
    )


@pytest.mark.parametrize(
    "word", ['"><script>', "\x1b]0;owned\x07\u202e", "x" * 10_000, "😀名前", "a\r\nb"]
)
def test_hostile_names_stay_narrow_and_printable_in_the_texts(word):
    process = Process(pid=1, user=word, program=word, note=word)
    detail = HostSnapshot(gpus=[Gpu(index=0, processes=[process])], gpu_count=1)
    held = [holder(word, program=word)]
    app = site(
        cluster([host("h", [gpu(0, "busy", holders=held, model=word)], reason=None)]),
        lambda _: detail,
    )
    for target in ("/host/h", "/"):
        for line in get(app, target, accept="*/*").text.splitlines():
            assert line.isascii()
            assert line.isprintable()
            assert len(line) <= 100


def test_the_help_explains_every_state_with_its_sign():
    shown = page(site(every_state()), "/help")
    for state in GPU_STATES:
        assert any(row[1] == state for row in shown.rows if len(row) == 4)
    assert "not used for 30 minutes" in shown.words
    assert [one.state for one in help_page(Limits()).states] == list(GPU_STATES)


def test_every_word_that_the_help_names_means_something():
    status = every_state()
    status.hosts[0].labels["room"] = "b12"
    for typed, _ in help_page(Limits()).words:
        found = select(status, parse(typed.replace("@alice", "@bob").replace("gpu-0", "gpu-")))
        assert not found.query_remarks, typed


@pytest.mark.parametrize(
    ("used", "total", "use", "memory"),
    [
        (8_192, 81_920, 10, "green"),
        (9_000, 81_920, 11, "green"),
        (9_100, 81_920, 50, "yellow"),
        (61_440, 81_920, 51, "yellow"),
        (62_300, 81_920, 100, "red"),
    ],
)
def test_the_colours_of_bars_are_those_of_gpumonitor(used, total, use, memory):
    one = gpu(0, "busy", utilization_percent=use, memory_used_mib=used, memory_total_mib=total)
    expected = "green" if use <= 10 else "yellow" if use <= 50 else "red"
    assert f'class="bar {expected}"' in bar(one, "use", "use")
    assert f'class="bar {memory}"' in bar(one, "memory", "use")
    assert 'class="bar"' in bar(one, "use", "states")


def test_an_unknown_value_has_no_bar_and_a_zero_an_empty_one():
    one = gpu(0, utilization_percent=None, memory_used_mib=None)
    assert bar(one, "use", "use") == bar(one, "memory", "use") == ""
    assert 'class="u0"' in bar(gpu(0, utilization_percent=0), "use", "states")


def test_the_colours_are_chosen_by_the_address_and_else_by_the_configuration():
    status, details, _ = simulated(2)
    plain, green = site(status, details.get), site(status, details.get, colors="use")
    assert 'class="bar red"' not in get(plain, "/host/gpu-01").text
    assert 'class="bar red"' in get(plain, "/host/gpu-01?colors=use").text
    assert 'class="bar red"' in get(green, "/host/gpu-01").text
    assert 'class="bar red"' not in get(green, "/host/gpu-01?colors=states").text


def test_the_detail_of_a_host_is_folded():
    status, details, _ = simulated(2)
    html = get(site(status, details.get), "/host/gpu-01").text
    assert '<details id="all-readings"><summary><h2>All readings</h2></summary>' in html


def test_the_process_table_names_gpu_user_memory_time_pid_and_program():
    status, details, _ = simulated(2)
    rows = page(site(status, details.get), "/host/gpu-01").rows
    (heads,) = [row for row in rows if "PID" in row]
    assert heads[:6] == ["GPU", "User", "Memory", "Time", "PID", "Program"]


def test_last_week_says_that_there_is_no_history_yet():
    assert "No history is kept yet" in page(site(every_state()), "/").words


def test_without_the_script_the_page_refreshes_by_a_header_and_nothing_depends_on_it():
    html = get(site(every_state()), "/").text
    assert "http-equiv" not in html
    # What only the script can do is hidden until it runs.
    for control in ("pause", "theme"):
        assert re.search(rf'<button type="button" id="{control}" hidden>', html)
    assert get(site(every_state()), "/?refresh=30").headers["Refresh"] == "30"


def test_the_script_makes_no_markup_of_text_and_asks_nobody_else():
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http"):
        assert word not in SCRIPT, word
    assert SCRIPT.count("fetch(") == 1
    assert "fetch(location.href" in SCRIPT
    assert SCRIPT.count("\n") < 250


def test_what_the_script_looks_for_is_on_the_page():
    html = get(site(every_state()), "/").text
    for name in set(re.findall(r'\$\("([a-z]+)"\)', SCRIPT)) - {"shortcuts"}:
        assert f'id="{name}"' in html, name
    for name in ("counts", "asof", "totals", "main", "free", "hosts"):
        assert f'id="{name}"' in html, name
    assert 'id="shortcuts"' in get(site(every_state()), "/help").text


def test_the_time_between_refreshes_is_the_configured_one():
    assert 'data-refresh="3.5"' in get(site(every_state(), refresh_seconds=3.5), "/").text
