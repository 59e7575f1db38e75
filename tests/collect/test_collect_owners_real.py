"""Owners with real processes of several users, in real cgroups and namespaces."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from collect_helpers import needs_root, needs_unshare, until
from container_runtime import engine
from fake_nvml.scenario import Scenario, environment, h100
from owner_cgroups import hierarchy
from owner_forms import CONTAINERS, DOCKER, ID, JOBS, POD, POD_

from gpumon.agent.launch import sampler_command
from gpumon.agent.supervisor import Supervisor
from gpumon.agent.take_one import take_one
from gpumon.collect import moment, procfs
from gpumon.collect.accounts import Accounts
from gpumon.collect.owners import OwnerOptions, Owners
from gpumon.collect.processes import Enricher
from gpumon.config import AgentConfig, OwnerRule
from gpumon.model import Gpu, Process, decode_snapshot
from gpumon.summary import decode_summary

pytestmark = [pytest.mark.system, needs_root]

NOBODY = 65534
ACCOUNT = "daemon"
"""An account of every Debian and Red Hat host, in the part of a person here."""


@pytest.fixture(params=["v1", "v2"])
def cgroups(request, spawn):
    made = hierarchy(request.param)
    yield made
    made.clean()


@pytest.fixture
def sleeping(spawn):
    """Start a process of a user that sleeps, and return its pid."""

    def start(uid=0, **options):
        process = spawn(["sleep", "600"], user=uid, **options)
        running(process.pid, b"sleep")
        return process.pid

    return start


def running(pid, comm):
    until(lambda: procfs.read_stat(f"/proc/{pid}").comm == comm, f"{comm!r} runs")
    return pid


def look(pid, *rules, subuid="/nonexistent"):
    accounts = Accounts()
    owners = Owners(accounts, OwnerOptions(rules), subuid=str(subuid))
    row = Process(pid=pid, kinds=["compute"])
    enricher = Enricher(pids_are_ours=True, accounts=accounts, owners=owners)
    enricher.enrich([Gpu(index=0, processes=[row])], moment.now(), [])
    return row


def single_paths(forms):
    """Return (path, expected) of the forms that are one path from the top."""
    for _, text, expected in forms:
        path = text.strip().split(":", 2)[-1]
        if text.count("\n") == 1 and not path.startswith("/..") and not path.endswith(("/", ")")):
            yield path, expected


def test_every_form_of_container_is_read_from_a_real_cgroup(cgroups, sleeping):
    pid = sleeping(NOBODY)
    for path, expected in single_paths(CONTAINERS):
        cgroups.put(pid, path)
        row = look(pid)
        assert (row.container, row.uid) == (expected, NOBODY), path


def test_every_form_of_job_is_read_from_a_real_cgroup(cgroups, sleeping):
    pid = sleeping(NOBODY)
    for path, expected in single_paths(JOBS):
        cgroups.put(pid, path)
        row = look(pid)
        assert (row.job, row.user) == (expected, pwd.getpwuid(NOBODY).pw_name), path


def test_processes_of_several_users_keep_their_owners(cgroups, sleeping):
    rule = OwnerRule(environment="JOB_OWNER")
    env = {"JOB_OWNER": ACCOUNT}
    uids = {0: ACCOUNT, 1: pwd.getpwuid(1).pw_name, NOBODY: pwd.getpwuid(NOBODY).pw_name}
    for uid, user in uids.items():
        pid = sleeping(uid, env=env)
        cgroups.put(pid, f"/docker/{ID}")
        row = look(pid, rule)
        assert (row.uid, row.container, row.user) == (uid, DOCKER, user)
        assert (row.user_by is not None) == (uid == 0)


def test_a_remapped_uid_of_a_rootless_container_is_its_users(cgroups, sleeping, tmp_path):
    uid = 2**31 - 5  # nobody has this one
    (tmp_path / "subuid").write_text(f"{ACCOUNT}:{uid - 100}:65536\n")
    pid = sleeping(uid)
    owner = pwd.getpwnam(ACCOUNT).pw_uid
    manager = f"/user.slice/user-{owner}.slice/user@{owner}.service"
    podman = "podman 3f4e2a1b9c0d"
    for parent, expected, container in (
        (manager, (ACCOUNT, "subuid"), podman),
        ("/user.slice/user-9.slice/user@9.service", (f"uid:{uid}", None), podman),
        (f"{manager[:-8]}9.service", (f"uid:{uid}", None), None),
        ("/machine.slice", (f"uid:{uid}", None), podman),
    ):
        cgroups.put(pid, f"{parent}/user.slice/libpod-{ID}.scope")
        row = look(pid, subuid=tmp_path / "subuid")
        assert (row.user, row.user_by) == expected
        assert (row.uid, row.container) == (uid, container)


@needs_unshare
def test_root_of_a_user_namespace_is_who_the_kernel_says(cgroups, spawn):
    process = spawn(["unshare", "--user", "--map-root-user", "sleep", "600"], user=NOBODY)
    try:
        running(process.pid, b"sleep")
    except (AssertionError, FileNotFoundError):
        pytest.skip("needs user namespaces for all: this kernel refuses them")
    assert Path(f"/proc/{process.pid}/uid_map").read_text().split() == ["0", str(NOBODY), "1"]
    cgroups.put(process.pid, f"/docker/{ID}")
    row = look(process.pid, OwnerRule(environment="PATH", any=True))
    assert (row.uid, row.user, row.user_by) == (NOBODY, pwd.getpwuid(NOBODY).pw_name, None)
    assert row.container == DOCKER


@needs_unshare
def test_a_process_of_a_pid_namespace_is_seen_in_its_container(cgroups, spawn):
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "600"]
    outer = spawn(command, env={**os.environ, "JOB_OWNER": ACCOUNT}).pid
    children = Path(f"/proc/{outer}/task/{outer}/children")
    inner = int(until(lambda: children.read_text().split(), "it has forked")[0])
    running(inner, b"sleep")
    status = Path(f"/proc/{inner}/status").read_text()
    assert f"NSpid:\t{inner}\t1\n" in status
    cgroups.put(inner, f"/system.slice/docker-{ID}.scope")
    row = look(inner, OwnerRule(environment="JOB_OWNER"))
    assert (row.container, row.user, row.user_by, row.uid) == (
        DOCKER,
        ACCOUNT,
        "rule: environment JOB_OWNER",
        0,
    )


@needs_unshare
def test_a_home_that_is_really_mounted_names_its_owner(cgroups, spawn, tmp_path):
    home = Path("/home") / ACCOUNT
    if not Path("/home").is_dir() or home.exists():
        pytest.skip(f"needs /home without {home}, which is made here for a moment")
    for name in ("usr", "work"):
        (tmp_path / name).mkdir()
    for link in ("bin", "lib", "lib64"):
        (tmp_path / link).symlink_to(f"usr/{link}")
    script = f"""
        mount --rbind /usr {tmp_path}/usr && mount --bind {home} {tmp_path}/work &&
        exec chroot {tmp_path} /usr/bin/sleep 600
    """
    home.mkdir()
    try:
        process = spawn(["unshare", "--mount", "sh", "-c", textwrap.dedent(script)])
        running(process.pid, b"sleep")
        cgroups.put(process.pid, f"/docker/{ID}")
        row = look(process.pid, OwnerRule(home_mount=True))
        assert (row.user, row.user_by, row.uid) == (ACCOUNT, "rule: home mount", 0)
        assert look(process.pid).user == "root"
        process.kill()
        process.wait()
    finally:
        home.rmdir()


@pytest.mark.parametrize(
    ("server", "started_from"),
    [
        ("tmux: server", "tmux"),
        ("screen", "screen"),
        ("sshd", "ssh session"),
        ("sshd-session", "ssh session"),
        ("cron", None),
    ],
)
def test_a_process_says_which_server_of_its_user_started_it(server, started_from):
    script = f"printf '{server}' >/proc/self/comm; sleep 600 & echo $!; wait"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, user=NOBODY)
    try:
        pid = int(process.stdout.readline())
        running(pid, b"sleep")
        row = look(pid)
        assert (row.uid, row.started_from) == (NOBODY, started_from)
        os.kill(pid, 9)
    finally:
        process.wait(10)
        process.stdout.close()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_process_in_a_real_tmux_says_so(tmp_path):
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    subprocess.run([*tmux, "new-session", "-d", "sleep 600"], check=True, timeout=10)
    try:
        asked = [*tmux, "list-panes", "-a", "-F", "#{pane_pid}"]
        pid = int(subprocess.run(asked, check=True, timeout=10, capture_output=True).stdout)
        running(pid, b"sleep")
        assert look(pid).started_from == "tmux"
    finally:
        subprocess.run([*tmux, "kill-server"], check=True, timeout=10)


def test_a_kernel_of_jupyter_and_what_its_server_starts_say_so(spawn, tmp_path):
    (tmp_path / "ipykernel_launcher.py").write_text("import time; time.sleep(600)")
    (tmp_path / "jupyterlab.py").write_text("import subprocess; subprocess.run(['sleep', '600'])")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    kernel = spawn([sys.executable, "-m", "ipykernel_launcher", "-f", "x.json"], env=env)
    server = spawn([sys.executable, "-m", "jupyterlab"], env=env)
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    started = int(until(lambda: children.read_text().split(), "it has started a program")[0])
    try:
        running(started, b"sleep")
        assert look(kernel.pid).started_from == "jupyter"
        assert look(started).started_from == "jupyter"
    finally:
        os.kill(started, 9)


# ---- All the way, from the configuration to a snapshot. ----


@pytest.fixture
def snapshot_of(tmp_path, monkeypatch):
    """Take a snapshot by a real sampler, of a host whose GPU is held by this pid."""

    def take(pid, config):
        hold_gpu(pid, tmp_path, monkeypatch)
        return only_row(take_one(command=sampler_command(config)))

    return take


def hold_gpu(pid, folder, monkeypatch):
    """Let the samplers that are started from now on see this process on a GPU."""
    scenario = Scenario(gpus=[h100(0)])
    scenario.process(0, pid, 4000)
    for name, value in environment(scenario.write(folder / "scenario")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUMON_PIDS_ARE_MINE", "1")


USERS = [account for account in pwd.getpwall() if 0 < account.pw_uid < NOBODY][:5]


def places(kind):
    """Return (account or uid, cgroup, container, job, started_from) of one process of each kind."""
    docker, podman, pod, slurm, session = USERS
    no_account = 2**31 - 7
    manager = f"/user.slice/user-{podman.pw_uid}.slice/user@{podman.pw_uid}.service/user.slice"
    login = f"/user.slice/user-{session.pw_uid}.slice"
    in_pod = f"pod {POD} (containerd 3f4e2a1b9c0d)"
    if kind == "v1":
        in_docker, in_lxc = f"/docker/{ID}", "/lxc/gpu-box"
        kubernetes = f"/kubepods/burstable/pod{POD}/{ID}"
        in_pod = in_pod.replace("containerd", "container")
        jobs = [(f"/slurm/uid_{slurm.pw_uid}/job_123/step_0/task_0", "slurm 123.0")]
    else:
        in_docker, in_lxc = f"/system.slice/docker-{ID}.scope", "/lxc.payload.gpu-box/init.scope"
        kubernetes = (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_}.slice/"
            f"cri-containerd-{ID}.scope"
        )
        scope = "/system.slice/slurmstepd.scope"
        jobs = [
            (f"{scope}/job_123/step_batch/user/task_0", "slurm 123.batch"),
            (f"{scope}/s5K1KKYAYG5D00/step_0/user/task_0", "slurm s5K1KKYAYG5D00.0"),
        ]
    return [
        (docker, in_docker, DOCKER, None, None),
        (podman, f"{manager}/libpod-{ID}.scope/container", "podman 3f4e2a1b9c0d", None, None),
        (pod, kubernetes, in_pod, None, None),
        (no_account, in_lxc, "lxc gpu-box", None, None),
        *((slurm, path, None, job, None) for path, job in jobs),
        (
            session,
            f"{login}/user@{session.pw_uid}.service/app.slice/run-r1.scope",
            None,
            None,
            None,
        ),
        (session, f"{login}/session-3.scope", None, None, None),
        (0, f"{login}/session-3.scope", None, None, f"session of {session.pw_name}"),
    ]


@needs_unshare
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (util-linux)")
def test_five_users_each_in_a_pid_namespace_and_another_kind_of_cgroup_are_told_apart(
    cgroups, spawn, tmp_path, monkeypatch
):
    assert len({account.pw_uid for account in USERS}) == 5
    scenario = Scenario(gpus=[h100(0), h100(1)])
    expected = {}
    for number, (who, path, container, job, started_from) in enumerate(places(cgroups.kind)):
        uid = who if isinstance(who, int) else who.pw_uid
        user = {0: "root"}.get(uid, f"uid:{uid}") if isinstance(who, int) else who.pw_name
        unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        ids = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        outer = spawn([*unshare, *ids, "sleep", "600"]).pid
        children = Path(f"/proc/{outer}/task/{outer}/children")
        pid = int(until(lambda c=children: c.read_text().split(), "it has forked")[0])
        running(pid, b"sleep")
        assert f"NSpid:\t{pid}\t1\n" in Path(f"/proc/{pid}/status").read_text()
        cgroups.put(pid, path)
        scenario.process(number % 2, pid, 1000 + number)
        expected[pid] = (uid, user, None, container, job, started_from, 1000 + number)
    for name, value in environment(scenario.write(tmp_path / "scenario")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUMON_PIDS_ARE_MINE", "1")
    snapshot = take_one(command=sampler_command(AgentConfig()))
    assert snapshot.errors == []
    found = {
        row.pid: (
            row.uid,
            row.user,
            row.user_by,
            row.container,
            row.job,
            row.started_from,
            row.gpu_memory_used_mib,
        )
        for gpu in snapshot.gpus
        for row in gpu.processes
    }
    assert found == expected


def test_a_user_who_makes_cgroups_of_their_own_stays_that_user(cgroups, sleeping):
    owner = pwd.getpwnam(ACCOUNT)
    pid = sleeping(owner.pw_uid, env={"SLURM_JOB_ID": "99"})
    session = f"/user.slice/user-{owner.pw_uid}.slice/session-5.scope"
    for claimed in (
        "job_99",
        "system.slice/slurmstepd.scope/job_99/step_0",
        f"docker/{ID}",
        f"system.slice/docker-{ID}.scope",
        f"kubepods/pod{POD}/{ID}",
    ):
        cgroups.put(pid, f"{session}/{claimed}")
        row = look(pid, OwnerRule(environment="SLURM_JOB_ID", any=True))
        assert (row.uid, row.user, row.user_by) == (owner.pw_uid, ACCOUNT, None)
        assert (row.container, row.job) == (None, None), claimed


def only_row(snapshot):
    assert snapshot.errors == []
    [row] = snapshot.gpus[0].processes
    return row


def test_the_rules_of_the_configuration_reach_the_snapshot(cgroups, sleeping, snapshot_of):
    pid = sleeping(0, env={"JOB_OWNER": ACCOUNT})
    cgroups.put(pid, f"/kubepods/pod{ID[:32]}/{ID}")
    without = snapshot_of(pid, AgentConfig())
    assert (without.user, without.user_by) == ("root", None)
    rule = OwnerRule(environment="JOB_OWNER")
    row = snapshot_of(pid, AgentConfig(owner_rules=[rule]))
    assert (row.user, row.user_by, row.uid) == (ACCOUNT, "rule: environment JOB_OWNER", 0)
    assert row.container == f"pod {ID[:32]} (container 3f4e2a1b9c0d)"


def test_a_sampler_with_a_socket_asks_only_when_there_is_a_container(
    cgroups, sleeping, snapshot_of, tmp_path
):
    with engine(tmp_path / "s") as docker:
        docker.run(ID, "train-7", **{"com.example.user": ACCOUNT})
        config = AgentConfig(
            container_socket=docker.path, owner_rules=[OwnerRule(label="com.example.user")]
        )
        pid = sleeping()
        assert snapshot_of(pid, config).container is None
        assert docker.requests == []
        cgroups.put(pid, f"/docker/{ID}")
        row = snapshot_of(pid, config)  # one sample: too early for the answer
        assert (row.container, row.user) == (DOCKER, "root")


def test_a_label_reaches_snapshot_and_summary_while_the_agent_runs(
    cgroups, sleeping, tmp_path, monkeypatch
):
    pid = sleeping()
    cgroups.put(pid, f"/system.slice/docker-{ID}.scope")
    hold_gpu(pid, tmp_path, monkeypatch)

    async def until_named(supervisor):
        work = asyncio.create_task(supervisor.run())
        try:
            while True:
                latest = supervisor.latest()
                if latest.snapshot is not None:
                    row = only_row(decode_snapshot(latest.snapshot))
                    if row.user != "root":
                        return row, decode_summary(latest.summary).gpus[0].holders
                await asyncio.sleep(0.02)
        finally:
            work.cancel()
            await asyncio.wait({work})

    with engine(tmp_path / "s") as docker:
        docker.run(ID, "train-7", **{"com.example.user": ACCOUNT})
        rule = OwnerRule(label="com.example.user")
        config = AgentConfig(container_socket=docker.path, owner_rules=[rule])
        supervisor = Supervisor(interval=0.1, command=sampler_command(config))
        row, [holder] = asyncio.run(asyncio.wait_for(until_named(supervisor), 20))
        assert docker.requests == ["GET /containers/json HTTP/1.0"]
    by = "rule: label com.example.user"
    assert (row.container, row.user, row.user_by) == (f"{DOCKER} (train-7)", ACCOUNT, by)
    assert (holder.user, holder.user_by) == (ACCOUNT, by)


def test_a_configuration_without_owners_changes_nothing_about_the_sampler():
    assert sampler_command(AgentConfig()) == sampler_command()


def test_rules_that_cannot_be_read_end_the_sampler_with_one_sentence():
    options = ["--interval", "5", "--owners", '{"rules": [{"label": 5}]}']
    done = subprocess.run([*sampler_command(), *options], capture_output=True, check=False)
    assert done.returncode == 2
    said = done.stderr.decode()
    assert "was expected: Expected `str | null`, got `int` - at `$.rules[0].label`" in said
    assert "Traceback" not in said
