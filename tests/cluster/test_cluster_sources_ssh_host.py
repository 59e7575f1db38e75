"""A host without an agent, over a real sshd: the login, one command a poll, all that breaks."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_tools import a_gpu, a_snapshot, listening, until
from ssh_host import SSHD, USER, SshHost, a_process_row, a_row, is_running, kill

from gpumon.cli import main
from gpumon.cluster.sources.build import open_logins
from gpumon.cluster.sources.ssh import connection
from gpumon.cluster.sources.ssh.login import Logins
from gpumon.cluster.sources.ssh.source import SshSource
from gpumon.config import Config, HostEntry, SshConfig
from gpumon.errors import SetupError, SourceError
from gpumon.model import encode

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(SSHD is None, reason="there is no sshd on this machine"),
]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SshHost]:
    with SshHost(tmp_path) as running:
        yield running


@pytest.fixture
def job() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a name of its own, to be found on a GPU."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    yield process
    process.kill()
    process.wait(5)


async def failure(source: SshSource, seconds: float = 8.0) -> SourceError:
    """The error of one poll, or of its being cut off as the poller does it."""
    poll = asyncio.create_task(source.poll())
    await asyncio.wait({poll}, timeout=seconds)
    if not poll.done():
        poll.cancel()
        began = time.monotonic()
        await asyncio.wait({poll}, timeout=5)
        assert time.monotonic() - began < 1.0, "it ends when it is told to"
        return checked(source.timed_out(seconds))
    with pytest.raises(SourceError) as caught:
        poll.result()
    return checked(caught.value)


def checked(error: SourceError) -> SourceError:
    assert error.kind in SourceError.KINDS
    assert str(error).startswith(f"{error.kind}: ")
    assert "\n" not in str(error)
    assert "127.0.0.1:" in str(error), "it says which host"
    return error


# Good answers


def test_gpus_and_their_owners_come_over_ssh(host, job):
    host.says([a_row(0, count=2), a_row(1, count=2)], [a_process_row(job.pid)])
    snapshot = host.run(SshSource.poll).detail()
    assert (snapshot.errors, snapshot.gpu_count, snapshot.hostname) == ([], 2, socket.gethostname())
    assert snapshot.host.memory_total_mib > 100
    first, second = snapshot.gpus
    assert second.processes == []
    [process] = first.processes
    assert (process.pid, process.user, process.uid) == (job.pid, USER, os.geteuid())
    assert (process.program, process.command, process.state) == ("sleep", None, "sleeping")
    assert process.gpu_memory_used_mib == 19000
    assert 0 <= time.time() - process.started_at < 60


def test_one_connection_serves_all_polls(host):
    async def thrice(source):
        for _ in range(3):
            await source.poll()

    host.run(thrice)
    assert (host.folder / "sshd.log").read_text().count("Accepted publickey") == 1
    assert len(host.calls()) == 6, "two nvidia-smi a poll"


def test_a_connection_that_ended_between_two_polls_is_no_failure(host):
    async def twice(source):
        await source.poll()
        for pid in host.sessions():
            kill(pid)
        return await source.poll()

    assert host.run(twice).summary.gpu_count == 1


def test_refused_columns_are_dropped_one_by_one_and_remembered(host):
    host.says(
        [a_row(**{"clocks_throttle_reasons.active": "0x0000000000000008"})],
        refused=["memory.reserved", "clocks_event_reasons.active", "mig.mode.current"],
    )

    async def twice(source):
        first = await source.poll()
        count = len(host.calls())
        await source.poll()
        return first, count, len(host.calls()) - count

    reading, first, second = host.run(twice)
    assert (first, second) == (2 * 4, 2)
    [gpu] = reading.detail().gpus
    assert gpu.memory_reserved_mib is None
    assert gpu.unknown["memory_reserved_mib"] == "not asked over SSH"
    assert gpu.clock_event_reasons == ["hw_slowdown"]
    assert gpu.memory_used_mib == 20500


def test_after_a_change_of_the_driver_everything_is_asked_again(host):
    async def work(source):
        host.says([a_row()], refused=["memory.reserved"])
        await source.poll()
        host.says([a_row(driver_version="999.1")])
        await source.poll()
        return await source.poll()

    assert host.run(work).detail().gpus[0].memory_reserved_mib == 613


def test_the_order_of_the_columns_does_not_matter(host, job):
    host.says([a_row()], [a_process_row(job.pid, process_name="/a b, c, 1")], reversed=True)
    [gpu] = host.run(SshSource.poll).detail().gpus
    assert (gpu.memory_total_mib, gpu.memory_used_mib, gpu.uuid) == (81920, 20500, "GPU-0000")
    assert [process.pid for process in gpu.processes] == [job.pid]


def test_mig_instances_are_listed_from_the_second_poll_on(host):
    gpu = a_row(mig_mode_current="Enabled", utilization_gpu="[N/A]")
    instance = "MIG-aaaa"
    text = f"GPU 0: A100 (UUID: GPU-0000)\n  MIG 3g.40gb Device 0: (UUID: {instance})"
    host.says([gpu], [], list=text)

    async def twice(source):
        return await source.poll(), await source.poll()

    first, second = (reading.detail().gpus[0] for reading in host.run(twice))
    assert (first.mig, "mig" in first.unknown) == ([], True)
    assert [(one.uuid, one.name) for one in second.mig] == [(instance, "3g.40gb")]
    assert second.unknown["utilization_percent"] == "not available"


def test_a_login_shell_that_talks_does_no_harm(tmp_path):
    forced = tmp_path / "shell"
    forced.write_text(
        '#!/bin/sh\necho Welcome to gpu-01\necho {}\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    forced.chmod(0o755)
    with SshHost(tmp_path, ForceCommand=str(forced)) as host:
        assert host.run(SshSource.poll).summary.gpu_count == 1


# A key that can do one thing only


def forced(host: SshHost, output: bytes, code: int = 0) -> None:
    """Let the key print `output`, whatever is asked."""
    (host.folder / "output").write_bytes(output)
    host.authorize("client", f'restrict,command="cat {host.folder}/output; exit {code}"')


def test_a_forced_command_that_prints_a_snapshot_is_read(host):
    snapshot = a_snapshot(a_gpu(0), a_gpu(1, name="H\x1b100"))
    forced(host, encode(snapshot) + b"\n")

    async def twice(source):
        await source.poll()
        return await source.poll()

    reading = host.run(twice)
    assert reading.summary.hostname == "gpu-01"
    assert reading.summary.sample_age_seconds == 0.0
    assert [gpu.name for gpu in reading.detail().gpus] == ["NVIDIA H100 80GB HBM3", "H\ufffd100"]
    assert host.calls() == []


def test_the_real_gpumon_snapshot_behind_a_forced_command_is_read(host):
    command = f"{sys.executable} -m gpumon snapshot --json"
    host.authorize("client", f'restrict,command="{command}"')
    reading = host.run(SshSource.poll, rpc_timeout=60.0)
    assert reading.summary.hostname == socket.gethostname()
    assert reading.summary.agent_version is not None


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b'{"gpus": 3}', "no snapshot of gpumon's"),
        (b"{" * 100_000, "no snapshot of gpumon's"),
        (b'{"gpus": [' + b",".join([b'{"index": 1}'] * 65) + b"]}", "at most 64 GPUs"),
        (b"Fri Nov 28 all is well\n", "and the words: Fri Nov 28"),
        (b"", "no output of ours"),
    ],
)
def test_a_forced_command_that_prints_something_else_is_named(host, output, words):
    forced(host, output)
    error = host.run(failure)
    assert error.kind == "bad answer"
    assert words in str(error)


# nvidia-smi that fails


NVML = "Failed to initialize NVML: "
FAILURES = [
    ("NVIDIA-SMI has failed because it couldn't communicate", 9, "no driver", "reach"),
    (f"{NVML}Driver/library version mismatch\n", 18, "version mismatch", "reboot"),
    (f"{NVML}Insufficient Permissions\n", 4, "no permission", "Insufficient"),
    ("Segmentation fault", 139, "failed", "Segmentation"),
    ("", 1, "failed", "exit code 1"),
]


@pytest.mark.parametrize(("text", "code", "kind", "words"), FAILURES)
def test_an_nvidia_smi_that_fails_is_an_error_of_the_host_in_words(host, text, code, kind, words):
    host.says({"text": text, "code": code})
    snapshot = host.run(SshSource.poll).detail()
    assert (snapshot.gpu_count, snapshot.gpus, snapshot.error_kind) == (None, [], kind)
    assert words in snapshot.errors[0]


def test_a_host_without_nvidia_smi_says_so(host):
    (host.bin / "nvidia-smi").unlink()
    snapshot = host.run(SshSource.poll).detail()
    assert (snapshot.gpu_count, snapshot.error_kind) == (None, "no library")
    assert "nvidia-smi was not found" in snapshot.errors[0]


def test_a_host_without_gpus_has_none(host):
    host.says({"text": "No devices were found\n", "code": 6})
    snapshot = host.run(SshSource.poll).detail()
    assert (snapshot.gpu_count, snapshot.gpus, snapshot.errors) == (0, [], [])


def test_a_list_of_processes_that_fails_makes_them_unknown_and_not_none(host):
    host.says([a_row()], {"text": "Unknown Error\n", "code": 255})
    snapshot = host.run(SshSource.poll).detail()
    [gpu] = snapshot.gpus
    assert (gpu.processes, gpu.memory_used_mib) == (None, 20500)
    assert "Unknown Error" in gpu.unknown["processes"]
    assert "exit code 255" in snapshot.errors[0]


def test_an_endless_list_of_processes_is_cut_on_the_host(host):
    host.says([a_row()], {"endless": True})
    [gpu] = host.run(SshSource.poll).detail().gpus
    assert gpu.processes is None
    assert "longer than any list" in gpu.unknown["processes"]


# Nothing hangs, nothing stays behind


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("part", [{"hang": True}, {"drip": True}])
def test_an_nvidia_smi_that_never_ends_is_killed_at_the_deadline(host, part, shell):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} on this machine")
    (host.bin / "sh").symlink_to(program)
    host.says(part)

    async def work(source):
        error = await failure(source, 1.0)
        [call] = host.calls()
        await until(lambda: not is_running(int(call[0])))
        host.says([a_row()])
        return error, await source.poll()

    error, reading = host.run(work)
    assert error.kind == "timed out"
    assert "while nvidia-smi or ps ran" in str(error)
    assert reading.summary.gpu_count == 1


def test_an_endless_answer_is_given_up_at_the_limit_and_its_program_killed(host):
    host.says({"endless": True})

    async def work(source):
        error = await failure(source)
        [call] = host.calls()
        await until(lambda: not is_running(int(call[0])))
        return error

    error = host.run(work)
    assert error.kind == "bad answer"
    assert "more than 4 MiB" in str(error)


def test_no_second_nvidia_smi_is_started_beside_one_that_can_not_be_killed(host):
    # So looks one that hangs in the driver: its options, its owner, its age.
    code = "import time; time.sleep(600)"
    hung = subprocess.Popen(
        [sys.executable, "-c", code, "nvidia-smi --query-gpu=index,uuid,pci.bus_id"]
    )
    try:
        host.says({"hang": True})

        async def work(source):
            await failure(source, 1.0)
            before = len(host.calls())
            await until(lambda: _age(hung.pid) > 4, seconds=10)
            error = await failure(source)
            stuck_calls = len(host.calls()) - before
            kill(hung.pid)
            hung.wait(5)
            host.says([a_row()])
            return error, stuck_calls, await source.poll()

        error, calls, reading = host.run(work, rpc_timeout=1.0)
        assert error.kind == "timed out"
        assert "can't be ended, so no other is started" in str(error)
        assert calls == 0
        assert reading.summary.gpu_count == 1
    finally:
        kill(hung.pid)


def _age(pid: int) -> float:
    text = subprocess.run(["ps", "-o", "etimes=", "-p", str(pid)], capture_output=True, check=False)
    return float(text.stdout or 0)


def test_a_connection_that_is_cut_in_the_middle_of_an_answer_is_a_failed_poll(host):
    host.says({"hang": True})

    async def work(source):
        poll = asyncio.create_task(failure(source))
        await until(lambda: len(host.calls()) > 0)
        for pid in host.sessions():
            kill(pid)
        error = await poll
        await until(lambda: not any(is_running(int(call[0])) for call in host.calls()))
        return error

    error = host.run(work)
    assert error.kind == "bad answer"
    assert "in the middle of the answer" in str(error)


def test_a_host_that_falls_silent_between_polls_is_noticed_by_keepalive(host, monkeypatch):
    monkeypatch.setattr(connection, "KEEPALIVE_SECONDS", 0.2)

    async def work(source):
        await source.poll()
        asleep = host.sessions()
        for pid in asleep:
            os.kill(pid, signal.SIGSTOP)
        try:
            await until(source._connection._open.is_closed)
            return await source.poll()
        finally:
            for pid in asleep:
                kill(pid)

    assert host.run(work).summary.gpu_count == 1


# Doors that stay shut


def test_an_unknown_host_key_is_never_accepted_and_the_sentence_says_what_to_do(host):
    host.known_hosts.write_text("")
    error = host.run(failure)
    assert error.kind == "host key"
    assert "no key of ssh://127.0.0.1" in str(error)
    assert "SHA256:" in str(error)
    assert f"ssh-keyscan -p {host.port} 127.0.0.1" in str(error)
    assert host.calls() == []


def test_a_changed_host_key_is_told_apart(host):
    host.know("other")
    error = host.run(failure)
    assert error.kind == "host key"
    assert "shows another key (SHA256:" in str(error)
    assert "somebody stands in between" in str(error)


def test_a_key_that_is_known_for_the_address_is_not_one_for_the_name(host):
    async def work():
        entry = host.entry(host="localhost", address=f"ssh://localhost:{host.port}")
        logins = Logins(host.config())
        source = SshSource(entry, logins)
        try:
            with pytest.raises(SourceError, match="no key of ssh://localhost"):
                await source.poll()
            public = host.known_hosts.read_text().replace("127.0.0.1", "localhost")
            host.known_hosts.write_text(public)
            return await source.poll()
        finally:
            await source.close()
            await logins.close()

    assert asyncio.run(asyncio.wait_for(work(), 20)).summary.gpu_count == 1


def test_a_corrected_known_hosts_is_noticed_without_a_restart(host):
    host.known_hosts.write_text("")

    async def work(source):
        await failure(source)
        host.know("host")
        return await source.poll()

    assert host.run(work).summary.gpu_count == 1


def test_what_the_sentence_says_about_ssh_keyscan_works(host):
    scan = ["ssh-keyscan", "-p", str(host.port), "127.0.0.1"]
    lines = subprocess.run(scan, capture_output=True, check=True, timeout=20).stdout
    host.known_hosts.write_bytes(lines)
    assert host.run(SshSource.poll).summary.gpu_count == 1


def test_a_key_that_the_host_does_not_take_is_named_with_its_user(host):
    host.authorize("other")
    error = host.run(failure)
    assert error.kind == "login refused"
    assert f"for the user {USER}" in str(error)


def test_a_host_that_wants_a_password_is_a_refusal_and_nothing_waits(tmp_path):
    wants = {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes"}
    with SshHost(tmp_path, **wants) as host:
        began = time.monotonic()
        assert host.run(failure).kind == "login refused"
        assert time.monotonic() - began < 5


def test_a_host_that_opens_no_session_says_so(tmp_path):
    with SshHost(tmp_path, MaxSessions="0") as host:
        error = host.run(failure)
    assert error.kind == "failed"
    assert "MaxSessions" in str(error)


def test_one_session_at_a_time_is_enough(tmp_path):
    async def thrice(source):
        for _ in range(2):
            await source.poll()
        return await source.poll()

    with SshHost(tmp_path, MaxSessions="1") as host:
        assert host.run(thrice).summary.gpu_count == 1


def test_no_sshd_at_all_is_refused(host):
    host.stop()
    error = host.run(failure)
    assert error.kind == "refused"
    assert "Is sshd running" in str(error)


@pytest.mark.parametrize(
    ("banner", "kind"),
    [(b"", "bad answer"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "bad answer"), (None, "timed out")],
)
def test_what_is_no_sshd_is_named_and_silence_ends(host, banner, kind):
    async def behave(reader, writer):
        if banner is None:
            await asyncio.sleep(3600)
        writer.write(banner)
        await writer.drain()

    async def work():
        async with listening(behave) as port:
            entry = host.entry(port=port, address=f"ssh://127.0.0.1:{port}")
            logins = Logins(host.config())
            source = SshSource(entry, logins)
            try:
                return await failure(source, 1.0)
            finally:
                await source.close()
                await logins.close()

    error = asyncio.run(asyncio.wait_for(work(), 20))
    assert error.kind == kind
    if banner is None:
        assert "while logging in" in str(error)


# What has to be there before


def setup_failure(host: SshHost, **ssh: Path | None) -> str:
    config = host.config()
    before = {"key_file": config.ssh.key_file, "known_hosts": config.ssh.known_hosts, "user": USER}
    with pytest.raises(SetupError) as caught:
        open_logins(Config(hosts=config.hosts, ssh=SshConfig(**{**before, **ssh})))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_that_can_not_be_used_keep_the_server_from_starting(host, tmp_path):
    assert "does not exist" in setup_failure(host, key_file=tmp_path / "no")
    (tmp_path / "text").write_text("my password is s3cret")
    words = setup_failure(host, key_file=tmp_path / "text")
    assert "is no private key" in words
    assert "s3cret" not in words
    assert "passphrase" in setup_failure(host, key_file=host.make_key("locked", "secret"))
    assert "does not exist" in setup_failure(host, known_hosts=tmp_path / "no")
    assert "can't be read" in setup_failure(host, key_file=tmp_path)
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    assert "is no file of host keys" in setup_failure(host, known_hosts=tmp_path / "odd")


def test_check_says_what_is_used_and_that_the_key_can_not_be_read(host, capsys):
    path = host.folder / "config.yml"
    text = f"ssh: {{key_file: KEY, known_hosts: known_hosts}}\nhosts: ['{host.entry().address}']\n"
    for key, code in (("client", 0), ("no", 2)):
        path.write_text(text.replace("KEY", key))
        assert main(["check", "--config", str(path)]) == code
    told = capsys.readouterr()
    assert f"key {host.folder}/client, known hosts {host.folder}/known_hosts" in told.out
    assert f"ssh.key_file: {host.folder}/no does not exist" in told.err


def test_a_known_hosts_that_was_broken_meanwhile_is_named(host):
    async def work(source):
        host.known_hosts.write_bytes(b"\xff\xfe")
        return await failure(source)

    error = host.run(work)
    assert error.kind == "failed"
    assert f"{host.known_hosts} can't be read" in str(error)


def test_a_key_that_others_can_read_is_told(host, caplog):
    (host.folder / "client").chmod(0o644)
    assert open_logins(host.config()) is not None
    assert "chmod 600" in caplog.text


def test_without_hosts_by_ssh_nothing_is_needed():
    assert open_logins(Config(hosts=[HostEntry(name="a", source="xmlrpc")])) is None


def test_without_the_library_one_sentence_says_what_to_install(host, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "asyncssh.py").write_text("raise ModuleNotFoundError(name='asyncssh')")
    (tmp_path / "config.yml").write_text(f"hosts: ['ssh://127.0.0.1:{host.port}']\n")
    for command in ("check", "web"):
        done = subprocess.run(
            [sys.executable, "-m", "gpumon", command, "--config", str(tmp_path / "config.yml")],
            env={**os.environ, "PYTHONPATH": str(blocked)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        assert "pip install '.[server,ssh]'" in done.stderr
        assert "Traceback" not in done.stderr
