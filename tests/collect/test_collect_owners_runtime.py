"""Names and labels from the socket of a container runtime, also of one that does not answer."""

from __future__ import annotations

import os
import time

import pytest
from collect_helpers import needs_root, until
from container_runtime import engine

from gpumon.collect.owners.runtime import Facts, Runtime, list_containers

ID = "3f4e2a1b9c0d" + "7" * 52
OTHER = "0badc0ffee00" + "1" * 52
QUICK = 0.3


@pytest.fixture
def docker(tmp_path):
    with engine(tmp_path / "docker.sock") as made:
        yield made


@pytest.fixture
def runtime(docker):
    return Runtime(str(docker.path), deadline=QUICK)


def answered(runtime, container_id, now=0.0):
    """Take samples at `now` until there is an answer, of either kind, or a failure."""

    def look():
        runtime.begin(now)
        facts, known = runtime.facts(container_id)
        return (facts,) if known or runtime.failure else None

    return until(look, "the runtime answers")[0]


def test_a_container_is_known_by_name_and_labels_a_sample_later(docker, runtime):
    docker.run(ID, "train-7", **{"com.example.user": "alice"})
    runtime.begin(0.0)
    assert runtime.facts(ID) == (None, False)
    assert answered(runtime, ID) == Facts("train-7", {"com.example.user": "alice"})
    assert docker.requests == ["GET /containers/json HTTP/1.0"]


def test_what_is_known_is_asked_again_once_a_minute_and_not_when_nobody_wants_it(docker, runtime):
    docker.run(ID, "train-7")
    answered(runtime, ID)
    for second in range(0, 60, 5):
        runtime.begin(float(second))
        assert runtime.facts(ID)[1]
    assert len(docker.requests) == 1
    for minute in (1, 2):
        runtime.begin(60.0 * minute)
        assert runtime.facts(ID) == (Facts("train-7", {}), True)
        until(lambda: not runtime._answers.empty(), "it has answered again")
        runtime.begin(60.0 * minute + 5)
        assert runtime.facts(ID)[1]
    assert len(docker.requests) == 3
    for second in range(200, 2000, 5):
        runtime.begin(float(second))
    assert len(docker.requests) == 3


def test_a_container_that_is_renamed_has_its_new_name_within_two_minutes(docker, runtime):
    docker.run(ID, "train-7")
    answered(runtime, ID)
    docker.containers.clear()
    docker.run(ID, "train-8")

    def name(now):
        runtime.begin(now)
        return runtime.facts(ID)[0].name

    assert name(59.0) == "train-7"
    until(lambda: name(61.0) == "train-8", "the new name is known")


def test_a_name_is_kept_while_the_runtime_fails(docker, runtime):
    docker.run(ID, "train-7")
    answered(runtime, ID)
    docker.answer = lambda handler: docker.send(handler, b"{}", 500)
    until(lambda: runtime.begin(61.0) or (runtime.facts(ID) and runtime.failure), "it has failed")
    for second in range(61, 400):
        runtime.begin(float(second))
        assert runtime.facts(ID) == (Facts("train-7", {}), True)


def test_all_containers_of_a_host_cost_one_question(docker, runtime):
    ids = [f"{n:064x}" for n in range(50)]
    for number, container_id in enumerate(ids):
        docker.run(container_id, f"c{number}")
    runtime.begin(0.0)
    assert [runtime.facts(container_id) for container_id in ids] == [(None, False)] * 50
    answered(runtime, ids[0])
    assert [runtime.facts(i)[0].name for i in ids] == [f"c{n}" for n in range(50)]
    assert len(docker.requests) == 1


def test_a_container_that_the_runtime_does_not_have_is_asked_for_once_a_minute(docker, runtime):
    assert answered(runtime, ID) is None
    assert runtime.facts(ID) == (None, True)
    docker.run(ID, "late")
    runtime.begin(59.0)
    assert runtime.facts(ID) == (None, True)
    assert answered(runtime, ID, now=61.0) == Facts("late", {})
    assert len(docker.requests) == 2


def test_a_container_that_comes_while_the_answer_is_written_is_asked_for_anew(docker, runtime):
    def slowly(handler):
        assert docker.release.wait(10)
        docker.list(handler)

    docker.answer = slowly
    runtime.begin(0.0)
    runtime.facts(ID)
    runtime.begin(1.0)
    assert runtime.facts(OTHER) == (None, False)
    docker.release.set()
    assert answered(runtime, ID, now=2.0) is None
    assert runtime.facts(OTHER) == (None, False), "nobody has asked about it yet"
    docker.run(OTHER, "second")
    assert answered(runtime, OTHER, now=10.0) == Facts("second", {})


def test_a_container_that_stopped_keeps_its_name_while_it_is_asked_for(docker, runtime):
    docker.run(ID, "train-7")
    answered(runtime, ID)
    docker.containers.clear()
    docker.run(OTHER, "second")
    runtime.begin(500.0)
    assert runtime.facts(ID)[0].name == "train-7"
    answered(runtime, OTHER, now=501.0)
    assert runtime.facts(ID)[0].name == "train-7"
    docker.run(f"{5:064x}", "third")
    answered(runtime, f"{5:064x}", now=5000.0)
    assert runtime.facts(ID) == (None, False)


def test_no_sample_waits_for_a_runtime_that_hangs(docker, runtime):
    docker.answer = lambda _: docker.release.wait(10)
    begin = time.monotonic()
    for second in range(20):
        runtime.begin(float(second))
        assert runtime.facts(ID) == (None, False)
    assert time.monotonic() - begin < QUICK
    until(lambda: runtime.begin(30.0) or runtime.failure, "the failure is told")
    assert "does not answer in time" in runtime.failure
    assert len(docker.requests) == 1


def test_a_drip_does_not_lengthen_the_deadline(docker):
    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        while not docker.release.wait(0.02):
            handler.wfile.write(b" ")

    docker.answer = drip
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        list_containers(str(docker.path), QUICK)
    assert time.monotonic() - begin < QUICK + 1.0


def test_a_failure_is_asked_again_after_a_minute_and_forgotten_when_it_is_over(docker, runtime):
    good, docker.answer = docker.answer, lambda handler: docker.send(handler, b"{}", 500)
    docker.run(ID, "train-7")
    assert answered(runtime, ID) is None
    assert "it answers 500 Internal Server Error" in runtime.failure
    docker.answer = good
    runtime.begin(59.0)
    assert runtime.facts(ID) == (None, False)
    assert len(docker.requests) == 1
    until(lambda: runtime.begin(61.0) or runtime.facts(ID)[1], "it is asked again")
    assert (runtime.facts(ID)[0].name, runtime.failure) == ("train-7", None)


def test_a_runtime_that_keeps_failing_does_not_fill_the_memory(docker, runtime):
    docker.answer = lambda handler: docker.send(handler, b"{}", 500)
    for number in range(3):
        now = 61.0 * number
        runtime.begin(now)
        for container in range(100):
            runtime.facts(f"{number}-{container}")
        until(lambda: not runtime._answers.empty(), "the runtime has failed")
        runtime.begin(now)
        assert not runtime._wanted


def test_a_failure_is_forgotten_when_nobody_asks_any_more(docker, runtime):
    docker.answer = lambda handler: docker.send(handler, b"{}", 500)
    assert answered(runtime, ID) is None
    for now, told in ((60.0, True), (119.0, True), (121.0, False)):
        runtime.begin(now)
        assert (runtime.failure is not None) == told
    assert len(docker.requests) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not that of a container runtime"),
        (b"<html>", "not that of a container runtime"),
        (b'{"Id": 1}', "not that of a container runtime"),
        (b'[{"Names": ["/x"]}]', "not that of a container runtime"),
        (b'[{"Id": "\xff"}]', "not that of a container runtime"),
        (b'[{"Id": "x", "Labels": {"a": 1}}]', "not that of a container runtime"),
        (b" " * (17 * 1024 * 1024), "longer than 16777216 bytes"),
    ],
)
def test_an_answer_of_another_kind_is_a_failure_in_one_line(docker, body, reason):
    runtime = Runtime(str(docker.path), deadline=5.0)
    docker.answer = lambda handler: docker.send(handler, body)
    assert answered(runtime, ID) is None
    assert reason in runtime.failure
    assert runtime.failure.isprintable()


def test_bytes_that_are_not_http_are_a_failure(docker, runtime):
    docker.answer = lambda handler: handler.wfile.write(b"\0\1\2 hello\r\n")
    assert answered(runtime, ID) is None
    assert "not that of a container runtime" in runtime.failure


def test_a_socket_that_is_not_there_is_a_failure(tmp_path):
    runtime = Runtime(str(tmp_path / "none.sock"))
    assert answered(runtime, ID) is None
    assert runtime.failure == (
        f"agent.container_socket: {tmp_path}/none.sock gives no names of containers "
        "(no such file or directory). Check the path, and that the agent may read and write it."
    )


@needs_root
def test_a_socket_that_the_agent_may_not_use_is_a_failure(docker, tmp_path):
    os.chmod(docker.path, 0o600)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        os.chmod(folder, 0o755)
    pid = os.fork()
    if pid == 0:  # a process of its own: a uid belongs to all threads
        os.setgid(65534)
        os.setuid(65534)
        try:
            list_containers(str(docker.path), QUICK)
        except PermissionError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_names_are_cleaned_and_missing_ones_stay_away(docker):
    docker.run(ID, "\x1b[31mevil\n" + "x" * 500)
    docker.containers.append({"Id": OTHER, "Names": None, "Labels": None})
    docker.containers.append({"Id": "e" * 64, "Names": [], "Labels": {}})
    found = list_containers(str(docker.path), 5.0)
    assert found[ID].name.startswith("\ufffd[31mevil xxx")
    assert len(found[ID].name) == 128
    assert found[OTHER] == found["e" * 64] == Facts(None, {})


def test_an_answer_in_chunks_is_read(docker):
    def in_chunks(handler):
        body = b'[{"Id":"' + ID.encode() + b'","Names":["/a"]}]'
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (body[:9], body[9:]):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        handler.wfile.write(b"0\r\n\r\n")

    docker.answer = in_chunks
    assert list_containers(str(docker.path), 5.0) == {ID: Facts("a", {})}
