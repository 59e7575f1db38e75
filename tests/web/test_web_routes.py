from __future__ import annotations

import json

import msgspec
import pytest
from web_client import BROWSER, get, page, site
from web_cluster import NOW, cluster, every_state, gpu, host, simulated

from gpumon.cluster.status import ClusterStatus

LIVE = ["/", "/index", "/gpus", "/gpus/", "/status.json", "/status.txt", "/host/gpu-1"]
LIVE += ["/host/gpu-1.json", "/user/bob", "/user/bob.json"]
ALL = [*LIVE, "/healthz", "/favicon.ico", "/static/gpumon.css", "/nothing", "/host/nobody"]


@pytest.fixture
def app():
    return site(every_state())


@pytest.mark.parametrize("path", ["/", "/index", "/gpus", "/gpus/"])
def test_a_browser_gets_the_page_and_curl_gets_text(app, path):
    html = get(app, path)
    assert html.code == 200
    assert html.headers["Content-Type"] == "text/html; charset=utf-8"
    plain = get(app, path, accept="*/*")
    assert plain.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert plain.body == get(app, "/status.txt").body
    assert "Accept" in html.headers["Vary"].split(", ")
    assert "Accept" in plain.headers["Vary"].split(", ")


def test_a_script_that_accepts_json_gets_json(app):
    reply = get(app, "/", accept="application/json")
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.body == get(app, "/status.json").body


def test_the_title_says_how_many_are_free(app):
    assert "<title>2 free - GPUs</title>" in get(app, "/").text


def test_the_json_is_the_cluster_status():
    status = every_state()
    reply = get(site(status), "/status.json")
    assert msgspec.json.decode(reply.body, type=ClusterStatus) == status


def test_the_json_of_a_host_holds_its_reading_but_no_command_lines():
    status, details, _ = simulated(3)
    for gpu_ in details["gpu-01"].gpus:
        for process in gpu_.processes or []:
            process.command = "python --token=hunter2"
    for gpu_ in details["gpu-03"].gpus:
        for instance in gpu_.mig:
            for process in instance.processes or []:
                process.command = "python --token=hunter2"
    app = site(status, details.get)
    answer = json.loads(get(app, "/host/gpu-01.json").body)
    assert answer["host"]["name"] == "gpu-01"
    assert len(answer["detail"]["gpus"]) == 8
    assert any(one["processes"] for one in answer["detail"]["gpus"])
    for path in ("/host/gpu-01.json", "/host/gpu-03.json", "/host/gpu-01", "/host/gpu-03"):
        assert b"hunter2" not in get(app, path).body


def test_the_json_of_a_user_lists_what_the_user_holds(app):
    answer = json.loads(get(app, "/user/bob.json").body)
    assert [(one["host"], one["gpu"], one["state"]) for one in answer["gpus"]] == [
        ("gpu-1", 1, "busy"),
        ("gpu-1", 3, "idle"),
    ]
    assert answer["totals"]["gpus"] == 2


def test_a_user_who_holds_nothing_is_an_answer_too(app):
    assert "zoe holds no GPU" in page(app, "/user/zoe").words
    assert json.loads(get(app, "/user/zoe.json").body)["gpus"] == []


def test_a_mistyped_host_gets_a_404_with_near_names(app):
    reply = get(app, "/host/gpu-11")
    assert reply.code == 404
    assert "There is no host" in reply.text
    assert '<a href="../host/gpu-1">gpu-1</a>' in reply.text
    assert json.loads(get(app, "/host/gpu-11.json").body)["near"][0] == "gpu-1"
    assert b"Did you mean gpu-1" in get(app, "/host/gpu-11", accept="*/*").body


@pytest.mark.parametrize("typed", ["GPU-1", "Gpu-1"])
def test_a_host_in_another_case_of_letters_is_the_first_that_is_named(app, typed):
    near = json.loads(get(app, f"/host/{typed}.json").body)["near"]
    assert near[0] == "gpu-1"


def test_a_parameter_that_is_given_twice_or_can_not_be_read_is_told(app):
    def remarks(query: str) -> list[str]:
        return json.loads(get(app, f"/status.json?{query}").body)["query_remarks"]

    assert remarks("q=free&q=busy") == ["q was given more than once: only the last counts."]
    assert remarks("q=%FF") == ["q was left out: it can't be read as UTF-8."]
    assert remarks("sort=%FF&q=free") == ["sort was left out: it can't be read as UTF-8."]
    assert remarks("q=free&other=1&other=2&%FF=1") == []
    assert "only the last counts" in page(app, "/?q=free&q=busy").words
    assert "only the last counts" in get(app, "/status.txt?q=free&q=busy").text


def test_an_unknown_address_gets_a_sentence_and_a_way_back(app):
    reply = get(app, "/no/such/place")
    assert reply.code == 404
    assert "There is nothing at this address." in reply.text
    assert '<a href="../../">All hosts</a>' in reply.text
    words = "There is nothing at this address. /help lists what can be asked."
    assert get(app, "/no", accept="*/*").text == f"{words}\n"
    assert json.loads(get(app, "/no.json").body)["error"] == words


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/status.json", "/host/gpu-1", "/healthz"])
def test_the_wrong_method_gets_405_with_a_sentence(app, method, path):
    reply = get(app, path, method=method)
    assert reply.code == 405
    assert reply.headers["Allow"] == "GET, HEAD"
    assert "use GET or HEAD" in reply.text


def test_a_failure_inside_is_left_to_the_server_which_logs_and_hides_it(capsys):
    def broken():
        raise RuntimeError("the secret reason")

    for accept in (BROWSER, "*/*", "application/json"):
        with pytest.raises(RuntimeError):
            get(site(broken), "/", accept=accept)
    assert capsys.readouterr().err == ""


def test_health_says_which_revision_is_shown(app):
    reply = get(app, "/healthz")
    assert reply.code == 200
    answer = json.loads(reply.body)
    assert answer["status"] == "ok"
    assert answer["revision"] == "r-1"
    assert answer["time"] == NOW
    assert (answer["hosts"], answer["hosts_fresh"]) == (5, 3)
    assert reply.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("query", "header"),
    [
        ("", None),
        ("?refresh=30", "30"),
        ("?refresh=1", "2"),
        ("?refresh=99999", "3600"),
        ("?refresh=0", None),
        ("?refresh=-5", None),
        ("?refresh=5.5", None),
        ("?refresh=abc", None),
        ("?refresh=%0d%0aX-Evil:1", None),
        ("?refresh=5%0d%0aX-Evil:1", None),
        ("?refresh=%c2%b2", None),
        ("?refresh=" + "9" * 5000, None),
    ],
)
def test_refresh_is_a_bounded_number_or_nothing(app, query, header):
    for path in ("/", "/host/gpu-1", "/user/bob"):
        reply = get(app, path + query)
        assert reply.code == 200
        assert reply.headers.get("Refresh") == header


def test_the_page_offers_to_refresh_and_to_stop_it(app):
    assert "./?refresh=30" in page(app, "/").links()
    refreshing = page(app, "/?refresh=30")
    assert "Stop refreshing" in refreshing.words
    assert "./?refresh=30" not in refreshing.links()
    assert "../host/gpu-1?refresh=30" in page(app, "/host/gpu-1").links()


@pytest.mark.parametrize("path", ALL)
def test_every_answer_carries_the_security_headers(app, path):
    headers = get(app, path).headers
    assert headers["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert not [name for name in headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize(
    "path",
    [
        "/%0d%0aX-Evil:%201",
        "/host/%0d%0aSet-Cookie:%20a=b",
        "/host/%ff%fe",
        "/user/%ff%fe%00",
        "/host/%00",
        "/host/..%2f..%2fetc%2fpasswd",
        "/static/..%2f..%2fapp.py",
        "/static/",
        "/host/",
        "/user/",
        "/host/.json",
        "//evil.example/",
        "/host/" + "x" * 20_000,
        "/" + "a/" * 2_000,
        "/?" + "&".join(f"a{n}=%ff" for n in range(5_000)),
        "/?refresh=%ff&%ff",
        "/static/gpumon.css?v=%0d%0aX-Evil:1",
    ],
)
@pytest.mark.parametrize("accept", [BROWSER, "*/*", "application/json"])
def test_odd_requests_are_harmless(app, path, accept):
    reply = get(app, path, accept=accept)
    assert reply.code in (200, 404)
    assert all("\r" not in value and "\n" not in value for value in reply.headers.values())
    assert "Set-Cookie" not in reply.headers
    assert b"root:" not in reply.body
    assert b"import bottle" not in reply.body


@pytest.mark.parametrize("path", ALL)
def test_no_answer_trusts_the_host_that_a_client_names(app, path):
    plain = get(app, path)
    forged = get(app, path, host="evil.example", x_forwarded_host="evil.example")
    assert forged == plain
    assert b"evil.example" not in forged.body


def test_the_prefix_without_its_slash_is_sent_on_by_a_relative_address():
    app = site(every_state(), prefix="/lab/gpus")
    reply = get(app, "/lab/gpus", x_forwarded_host="evil.example")
    assert reply.code == 302
    assert reply.headers["Location"] == "gpus/"
    kept = get(app, "/lab/gpus?refresh=30&next=//evil.example")
    assert kept.headers["Location"] == "gpus/?refresh=30"


def test_a_configured_prefix_may_be_stripped_by_the_proxy_or_not():
    app = site(every_state(), prefix="/gpus")
    for path in ("/host/gpu-1", "/user/bob", "/status.txt", "/"):
        assert get(app, f"/gpus{path}").body == get(app, path).body
    assert get(app, "/gpusx/host/gpu-1").code == 404


def test_the_simulated_flag_stands_on_every_face():
    status, details, _ = simulated(3)
    app = site(status, details.get)
    for path in ("/", "/host/gpu-01", "/user/bob"):
        assert "SIMULATED" in page(app, path).words
    assert get(app, "/status.txt").text.startswith("SIMULATED")
    for path in ("/status.json", "/host/gpu-01.json", "/user/bob.json", "/healthz"):
        assert json.loads(get(app, path).body)["simulated"] is True


def test_a_real_cluster_never_says_simulated():
    app = site(cluster([host("gpu-1", [gpu(0)])]))
    for path in ("/", "/host/gpu-1", "/status.txt"):
        assert "SIMULATED" not in get(app, path).text
