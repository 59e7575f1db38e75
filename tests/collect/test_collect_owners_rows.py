"""Container, job and person in the rows of processes, from recorded /proc folders."""

from __future__ import annotations

import os
import threading

import msgspec
import pytest
from collect_helpers import until
from container_runtime import engine
from owner_forms import DOCKER, GIVEN, ID, USER_SLICE
from owner_trees import write, write_init

from gpumon.collect import procfs
from gpumon.collect.accounts import SILENT, Accounts
from gpumon.collect.moment import Moment
from gpumon.collect.mps import SHARED
from gpumon.collect.owners import OwnerOptions, Owners
from gpumon.collect.processes import Enricher
from gpumon.config import OwnerRule
from gpumon.model import Gpu, Process

NAMES = {0: "root", 1000: "alice", 1001: "bob"}
IN_DOCKER = f"0::/system.slice/docker-{ID}.scope\n"
IN_ROOTLESS = f"0::{USER_SLICE}/user.slice/libpod-{ID}.scope\n"
BY_VARIABLE = OwnerRule(environment="JOB_OWNER")


class Host:
    """A host of recorded processes, with an account database of three people."""

    def __init__(self, folder):
        self.proc = folder / "proc"
        self.proc.mkdir()
        self.subuid = folder / "subuid"
        self.nsswitch = folder / "nsswitch.conf"
        self.nsswitch.write_text("passwd: files systemd\n")
        self.look_up = NAMES.get
        self.exists = {name: name for name in NAMES.values()}.get
        self.enricher = None
        self.errors = []
        write_init(self.proc)

    def start(self, *rules, socket=None, patience=1.0):
        accounts = Accounts(
            lambda uid: self.look_up(uid),
            patience,
            account_named=lambda name: self.exists(name),
            nsswitch=str(self.nsswitch),
        )
        owners = Owners(
            accounts,
            OwnerOptions(rules, None if socket is None else str(socket)),
            proc=str(self.proc),
            subuid=str(self.subuid),
        )
        self.enricher = Enricher(
            pids_are_ours=True, accounts=accounts, owners=owners, proc=str(self.proc)
        )

    def row(self, pid=500, now=0.0, **fields):
        """Write the process, take a sample and return its row."""
        if fields:
            write(self.proc, pid, **fields)
        if self.enricher is None:
            self.start()
        row = Process(pid=pid, kinds=["compute"], gpu_memory_used_mib=7)
        self.errors = []
        moment = Moment(1e9 + now, 100.0 + now, 1e6 + now)
        self.enricher.enrich([Gpu(index=0, processes=[row])], moment, self.errors)
        return row


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def who(row):
    return row.user, row.user_by, row.uid


# ---- Container and job. ----


def test_a_row_says_container_and_job(host):
    row = host.row(cgroup=f"0::/system.slice/slurmstepd.scope/job_5/step_0/user/libpod-{ID}\n")
    assert (row.container, row.job) == ("podman 3f4e2a1b9c0d", "slurm 5.0")
    assert who(row) == ("root", None, 0)


def test_a_row_of_a_process_in_no_container_says_nothing(host):
    row = host.row(uid=1000, cgroup="0::/user.slice/user-1000.slice/session-5.scope\n")
    assert (row.container, row.job, row.started_from) == (None, None, None)


def test_a_process_that_moves_is_seen_there_within_a_minute(host):
    first = host.row(cgroup="0::/system.slice/slurmstepd.scope/system\n")
    moved = "0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0\n"
    assert first.job is None
    assert host.row(cgroup=moved, now=5).job is None
    assert host.row(now=61).job == "slurm 5.0"


def test_a_known_process_costs_one_read_and_keeps_what_is_known(host, monkeypatch):
    host.start(BY_VARIABLE)
    before = host.row(cgroup=IN_DOCKER, environment={"JOB_OWNER": "alice"})
    reads = []
    read = procfs._read
    monkeypatch.setattr(procfs, "_read", lambda path, most: reads.append(path) or read(path, most))
    after = host.row(now=5)
    assert reads == [f"{host.proc}/500/stat"]
    assert (
        (after.container, who(after))
        == (DOCKER, who(before))
        == (DOCKER, ("alice", *who(before)[1:]))
    )


def test_a_pid_that_goes_to_another_process_brings_no_container(host):
    assert host.row(cgroup=IN_DOCKER).container == DOCKER
    after = host.row(start=2000, uid=1001, now=5, cgroup="0::/\n")
    assert (after.container, who(after)) == (None, ("bob", None, 1001))


def test_a_zombie_keeps_the_container_that_it_was_in(host):
    assert host.row(cgroup=IN_DOCKER).container == DOCKER
    write(host.proc, 500, cgroup="0::/\n")
    stat = host.proc / "500" / "stat"
    stat.write_text(stat.read_text().replace(") S ", ") Z "))
    assert host.row(now=61).container == DOCKER


def test_a_process_on_two_gpus_is_in_the_same_container_on_both(host):
    write(host.proc, 500, cgroup=IN_DOCKER, environment={"JOB_OWNER": "alice"})
    host.start(BY_VARIABLE)
    gpus = [Gpu(index=index, processes=[Process(pid=500)]) for index in (0, 1)]
    host.enricher.enrich(gpus, Moment(1e9, 100.0, 1e6), [])
    first, second = (gpu.processes[0] for gpu in gpus)
    assert second == first
    assert (second.container, who(second)) == (DOCKER, ("alice", "rule: environment JOB_OWNER", 0))


# ---- The environment as evidence of a job. ----

SLURMD = "0::/system.slice/slurmd.service\n"


@pytest.mark.parametrize(
    ("cgroup", "environment", "job"),
    [
        (SLURMD, {"SLURM_JOB_ID": "77", "SLURM_JOB_UID": "1000"}, "slurm 77"),
        (SLURMD, {"SLURM_JOB_ID": "77", "SLURM_JOB_UID": "1001"}, None),
        (SLURMD, {}, None),
        (SLURMD, None, None),
        ("0::/user.slice/user-1000.slice/session-5.scope\n", {"SLURM_JOB_ID": "77"}, None),
        (f"0::{USER_SLICE}/app.slice/slurmd.service\n", {"SLURM_JOB_ID": "77"}, None),
        ("0::/system.slice/slurmstepd.scope/job_5\n", {"SLURM_JOB_ID": "77"}, "slurm 5"),
        (
            "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0\n",
            {"SLURM_JOB_ID": "77"},
            "slurm s5K1KKYAYG5D00.0",
        ),
    ],
)
def test_the_environment_names_a_job_only_where_slurm_started_the_process(
    host, cgroup, environment, job
):
    slurm_step(host, 300, "slurmstepd: [77.0]")
    row = host.row(uid=1000, parent=300, cgroup=cgroup, environment=environment)
    assert row.job == job


def slurm_step(host, pid, title, uid=0):
    write(host.proc, pid, uid=uid, comm="slurmstepd", argv=(title,), cgroup=SLURMD)


@pytest.mark.parametrize(
    ("title", "uid", "job"),
    [
        ("slurmstepd: [77.0]", 0, "slurm 77"),
        ("slurmstepd: [77.batch]", 0, "slurm 77"),
        ("slurmstepd: [5.0]", 0, None),  # the job that it is in fact in
        ("slurmstepd: [77.0]", 1000, None),  # a program of that name
    ],
)
def test_nobody_can_claim_anothers_job_by_a_variable(host, title, uid, job):
    slurm_step(host, 300, title, uid)
    write(host.proc, 301, uid=1000, parent=300, comm="bash", argv=("bash",), cgroup=SLURMD)
    row = host.row(uid=1000, parent=301, cgroup=SLURMD, environment={"SLURM_JOB_ID": "77"})
    assert row.job == job


@pytest.mark.parametrize("given", [given for given in GIVEN if "box" not in given])
def test_nobody_becomes_somebody_else_by_a_cgroup_that_they_made(host, given):
    """A uid of a user's own range has no account, so a rule could name anybody for it.

    In a container of the host's own (the box), the rules hold for all that is in it.
    """
    host.start(BY_VARIABLE)
    environment = {"JOB_OWNER": "bob", "SLURM_JOB_ID": "77"}
    below = f"{given}/system.slice/docker-{ID}.scope"
    row = host.row(uid=101000, cgroup=f"0::{below}\n", environment=environment)
    assert (*who(row), row.job) == ("uid:101000", None, 101000, None)
    assert host.row(501, uid=1000, cgroup=f"0::{below}\n", environment=environment).user == "alice"


def test_the_socket_is_not_asked_for_the_name_of_a_container_below_a_service(host, tmp_path):
    with engine(tmp_path / "s") as docker:
        docker.run(ID, "train-7")
        host.start(socket=docker.path)
        row = host.row(cgroup=f"0::/system.slice/web.service/libpod-payload-{ID}\n")
        assert row.container == "podman 3f4e2a1b9c0d"
        assert docker.requests == []


def test_no_job_comes_from_an_ancestor(host):
    slurm = "0::/system.slice/slurmstepd.scope/job_5/step_0\n"
    write(host.proc, 400, uid=1000, cgroup=slurm, environment={"SLURM_JOB_ID": "5"})
    assert host.row(uid=1000, parent=400, cgroup="0::/\n", environment={}).job is None


# ---- Who is given a person. ----


def test_a_container_of_roots_becomes_a_persons_and_says_by_what(host):
    host.start(BY_VARIABLE)
    row = host.row(cgroup=IN_DOCKER, environment={"JOB_OWNER": "alice", "PATH": "/bin"})
    assert who(row) == ("alice", "rule: environment JOB_OWNER", 0)


def test_without_rules_a_container_of_roots_stays_roots(host):
    row = host.row(cgroup=IN_DOCKER, environment={"JOB_OWNER": "alice"})
    assert who(row) == ("root", None, 0)


def test_no_process_outside_a_container_is_given_to_somebody_else(host):
    host.start(BY_VARIABLE)
    row = host.row(cgroup="0::/system.slice/cron.service\n", environment={"JOB_OWNER": "alice"})
    assert who(row) == ("root", None, 0)


def test_an_owner_who_has_an_account_is_never_replaced(host):
    host.start(BY_VARIABLE)
    row = host.row(uid=1001, cgroup=IN_DOCKER, environment={"JOB_OWNER": "alice"})
    assert who(row) == ("bob", None, 1001)


def test_a_uid_without_an_account_becomes_a_persons_by_rule(host):
    host.start(BY_VARIABLE)
    row = host.row(uid=101000, cgroup=IN_DOCKER, environment={"JOB_OWNER": "alice"})
    assert who(row) == ("alice", "rule: environment JOB_OWNER", 101000)


def test_a_uid_that_a_directory_may_know_is_nobody_elses_however_it_answers(host):
    """A directory that is down says "no such user", like one that has none."""
    host.nsswitch.write_text("passwd: files sss\n")
    host.start(BY_VARIABLE)
    environment = {"JOB_OWNER": "bob"}
    row = host.row(uid=101000, cgroup=IN_DOCKER, environment=environment)
    assert who(row) == ("uid:101000", None, 101000)
    host.look_up = {**NAMES, 101000: "dora"}.get  # the directory is up again
    until(lambda: host.row(now=61).user == "dora", "its answer is taken")
    root = host.row(501, cgroup=IN_DOCKER, environment=environment)
    assert root.user == "bob", "root is nobody's account but its own"
    host.subuid.write_text("carol:231072:65536\n")
    ranged = host.row(502, uid=231072, cgroup=IN_DOCKER, environment=environment)
    assert ranged.user == "bob", "a uid of a range for namespaces is no account"


def test_nobody_is_named_while_the_account_database_is_silent(host):
    answers = threading.Event()
    host.look_up = lambda uid: answers.wait(10) and None
    host.start(BY_VARIABLE, patience=0.05)
    row = host.row(uid=101000, cgroup=IN_DOCKER, environment={"JOB_OWNER": "alice"})
    assert (*who(row), row.note) == ("uid:101000", None, 101000, SILENT)
    answers.set()
    until(lambda: host.row(now=5).user == "alice", "the rule holds now")


def test_a_name_counts_only_when_the_account_database_has_said_so(host):
    answers = threading.Event()
    host.exists = lambda name: answers.wait(10) and name
    host.start(BY_VARIABLE, OwnerRule(home_mount=True), patience=0.05)
    row = host.row(cgroup=IN_DOCKER, environment={"JOB_OWNER": "alice"})
    assert who(row) == ("root", None, 0)
    answers.set()
    until(lambda: host.row(now=5).user == "alice", "the rule holds now")


def test_an_environment_that_cannot_be_read_names_nobody(host):
    host.start(BY_VARIABLE)
    assert who(host.row(cgroup=IN_DOCKER, environment=None)) == ("root", None, 0)


def test_an_environment_that_is_too_long_to_read_names_nobody(host):
    host.start(BY_VARIABLE)
    environment = {"JOB_OWNER": "alice", "X": "x" * 200_000}
    assert who(host.row(cgroup=IN_DOCKER, environment=environment)) == ("root", None, 0)


def test_a_home_that_was_mounted_names_its_owner(host):
    host.start(OwnerRule(home_mount=True))
    mounts = "500 400 0:45 /homes/bob /work rw,relatime - xfs /dev/sdb1 rw\n"
    row = host.row(cgroup=IN_DOCKER, mounts=mounts)
    assert who(row) == ("bob", "rule: home mount", 0)


BOBS = "500 400 0:45 /homes/bob /work rw,relatime - xfs /dev/sdb1 rw\n"
ALICES = BOBS.replace("bob", "alice")


def test_the_mounts_of_a_container_are_read_once_for_all_its_processes_of_a_sample(
    host, monkeypatch
):
    host.start(OwnerRule(home_mount=True))
    namespace = host.proc / "namespace"
    namespace.touch()
    for pid in range(500, 510):
        write(host.proc, pid, cgroup=IN_DOCKER, environment={}, mounts=BOBS)
        (host.proc / str(pid) / "ns").mkdir()
        os.link(namespace, host.proc / str(pid) / "ns" / "mnt")
    reads = []
    read = procfs.read_mounts
    monkeypatch.setattr(procfs, "read_mounts", lambda folder: reads.append(folder) or read(folder))
    rows = [Process(pid=pid) for pid in range(500, 510)]
    host.enricher.enrich([Gpu(index=0, processes=rows)], Moment(1e9, 100.0, 1e6), [])
    assert {row.user for row in rows} == {"bob"}
    assert len(reads) == 2  # the host's and the container's
    # The number of a namespace that is gone is soon another one's.
    row = host.row(510, now=5, cgroup=IN_DOCKER, environment={}, mounts=ALICES)
    (host.proc / "510" / "ns").mkdir()
    os.link(namespace, host.proc / "510" / "ns" / "mnt")
    row = host.row(510, now=70)
    assert row.user == "alice"


def test_a_mount_table_that_is_too_long_names_nobody_and_that_is_said(host):
    host.start(OwnerRule(home_mount=True), BY_VARIABLE)
    padding = "501 400 0:45 /homes/x /x rw,relatime - xfs /dev/sdb1 rw\n" * 20_000
    row = host.row(cgroup=IN_DOCKER, environment={"JOB_OWNER": "alice"}, mounts=BOBS + padding)
    assert who(row) == ("root", None, 0), "a later rule might name somebody else"
    for now in (0.0, 5.0, 61.0):
        host.row(now=now)
        (error,) = host.errors
        assert "mount table is too long" in error
    write(host.proc, 500, cgroup=IN_DOCKER, environment={}, mounts=BOBS)
    assert host.row(now=125).user == "bob"
    host.row(now=200)
    assert host.errors == []


def test_label_and_name_come_from_the_socket_one_sample_later(host, tmp_path):
    rule = OwnerRule(label="com.example.user")
    with engine(tmp_path / "s") as docker:
        docker.run(ID, "train-7", **{"com.example.user": "alice"})
        host.start(rule, BY_VARIABLE, socket=docker.path)
        first = host.row(cgroup=IN_DOCKER, environment={"JOB_OWNER": "bob"})
        assert (first.container, who(first)) == (DOCKER, ("root", None, 0))
        until(lambda: host.row(now=1).user == "alice", "the label is known")
        row = host.row(now=2)
    assert (row.container, who(row)) == (
        f"{DOCKER} (train-7)",
        ("alice", "rule: label com.example.user", 0),
    )
    assert host.errors == []


def test_a_runtime_that_fails_is_told_once_per_sample_and_names_nobody(host, tmp_path):
    rule = OwnerRule(label="com.example.user")
    host.start(rule, BY_VARIABLE, socket=tmp_path / "none")
    host.row(cgroup=IN_DOCKER, environment={"JOB_OWNER": "bob"})
    until(lambda: host.row(now=1) and host.errors, "the failure is told")
    for now in (2, 30, 90):
        row = host.row(now=now)
        assert (row.container, who(row)) == (DOCKER, ("root", None, 0))
        [error] = host.errors
        assert error.startswith(f"agent.container_socket: {tmp_path}/none gives no names")


# ---- Rootless containers. ----


@pytest.mark.parametrize(
    ("subuid", "expected"),
    [
        ("alice:231072:65536\n", ("alice", "subuid")),
        ("1000:231072:65536\n", ("alice", "subuid")),
        ("bob:231072:65536\n", ("uid:232071", None)),
        ("alice:231072:65536\nbob:231072:65536\n", ("uid:232071", None)),
        ("alice:300000:65536\n", ("uid:232071", None)),
        ("", ("uid:232071", None)),
    ],
)
def test_a_uid_of_a_rootless_container_is_the_users_where_the_ranges_say_so(host, subuid, expected):
    host.subuid.write_text(subuid)
    row = host.row(uid=232071, cgroup=IN_ROOTLESS)
    assert who(row) == (*expected, 232071)


def test_a_uid_of_a_range_outside_a_rootless_container_stays_a_number(host):
    host.subuid.write_text("alice:231072:65536\n")
    for cgroup in (IN_DOCKER, "0::/\n", f"0::{USER_SLICE}/app.slice/x.service\n"):
        assert who(host.row(uid=232071, cgroup=cgroup)) == ("uid:232071", None, 232071)


def test_what_the_kernel_says_of_a_rootless_container_wins_over_a_rule(host):
    host.subuid.write_text("alice:231072:65536\n")
    host.start(BY_VARIABLE)
    row = host.row(uid=232071, cgroup=IN_ROOTLESS, environment={"JOB_OWNER": "bob"})
    assert who(row) == ("alice", "subuid", 232071)


def test_no_rule_names_a_person_for_what_a_user_has_made(host, tmp_path):
    # The user could give the cgroup the id of another one's container, and any environment.
    with engine(tmp_path / "s") as docker:
        docker.run(ID, "bob-train", **{"com.example.user": "bob"})
        rules = (OwnerRule(label="com.example.user"), BY_VARIABLE)
        host.start(*rules, socket=docker.path)
        write(host.proc, 600, cgroup=IN_DOCKER)
        until(lambda: host.row(600).user == "bob", "the label is known")
        row = host.row(uid=232071, cgroup=IN_ROOTLESS, environment={"JOB_OWNER": "bob"})
    assert (row.container, who(row)) == ("podman 3f4e2a1b9c0d", ("uid:232071", None, 232071))


# ---- Apptainer. ----


@pytest.mark.parametrize(
    ("environment", "own_mounts", "container"),
    [
        ({"APPTAINER_NAME": "torch.sif"}, True, "apptainer torch.sif"),
        ({"SINGULARITY_NAME": "torch.sif"}, True, "apptainer torch.sif"),
        ({"APPTAINER_NAME": "torch.sif"}, False, None),
        ({"APPTAINER_NAME": ""}, True, None),
        ({"OTHER": "torch.sif"}, True, None),
        (None, True, None),
    ],
)
def test_apptainer_is_told_by_its_variables_and_mounts_of_its_own(
    host, environment, own_mounts, container
):
    for pid in (1, 500):
        (host.proc / str(pid) / "ns").mkdir(parents=True)
    (host.proc / "1" / "ns" / "mnt").touch()
    if own_mounts:
        (host.proc / "500" / "ns" / "mnt").touch()
    else:
        (host.proc / "500" / "ns" / "mnt").hardlink_to(host.proc / "1" / "ns" / "mnt")
    row = host.row(uid=1000, environment=environment)
    assert (row.container, who(row)) == (container, ("alice", None, 1000))


def test_no_rule_names_a_person_where_only_the_environment_tells_of_a_container(host):
    # Anybody with a range in /etc/subuid can make such a process.
    (host.proc / "500" / "ns").mkdir(parents=True)
    (host.proc / "1" / "ns").mkdir(parents=True)
    (host.proc / "1" / "ns" / "mnt").touch()
    (host.proc / "500" / "ns" / "mnt").touch()
    host.start(BY_VARIABLE)
    environment = {"APPTAINER_NAME": "torch.sif", "JOB_OWNER": "bob"}
    row = host.row(uid=232071, environment=environment)
    assert (row.container, who(row)) == (
        "apptainer torch.sif",
        ("uid:232071", None, 232071),
    )


def test_a_container_of_the_cgroups_is_not_taken_for_apptainer(host):
    row = host.row(cgroup=IN_DOCKER, environment={"APPTAINER_NAME": "torch.sif"})
    assert row.container == DOCKER


# ---- From where it was started. ----


def chain(host, *ancestors, uid=1000, **fields):
    """Write ancestors, the oldest first, each (comm, argv, uid), and return the row below them."""
    parent = 1
    for pid, (comm, argv, owner) in enumerate(ancestors, 100):
        write(host.proc, pid, uid=owner, parent=parent, comm=comm, argv=argv)
        parent = pid
    return host.row(uid=uid, parent=parent, **fields)


SHELL = ("bash", ("-bash",), 1000)


@pytest.mark.parametrize(
    ("ancestors", "started_from"),
    [
        ([("tmux: server", ("tmux",), 1000), SHELL], "tmux"),
        ([("screen", ("SCREEN",), 1000), SHELL], "screen"),
        ([("sshd", ("sshd: alice@pts/0",), 1000), SHELL], "ssh session"),
        ([("sshd-session", ("sshd-session: alice",), 1000), SHELL], "ssh session"),
        ([("jupyter-lab", ("python", "/x/bin/jupyter-lab"), 1000)], "jupyter"),
        ([("jupyter-noteboo", ("python", "/x/bin/jupyter-notebook"), 1000)], "jupyter"),
        ([("python3", ("python3", "-m", "jupyterlab"), 1000)], "jupyter"),
        ([("python3.11", ("python3.11", "-m", "ipykernel_launcher", "-f", "x"), 1000)], "jupyter"),
        # The nearest is the most telling.
        ([("sshd", ("sshd",), 1000), SHELL, ("tmux: server", ("tmux",), 1000)], "tmux"),
        # Nothing telling, or not this user's.
        ([SHELL, SHELL], None),
        ([("python", ("python", "launch.py", "jupyter"), 1000)], None),
        ([("python", ("python", "jupyter_plots.py"), 1000)], None),
        ([("tmux: server", ("tmux",), 1001), SHELL], None),
        ([("tmux: server", ("tmux",), 1000), ("sudo", ("sudo",), 0), SHELL], None),
        ([("sshd", ("sshd: /usr/sbin/sshd -D",), 0)], None),
        ([("tmux: server", ("tmux",), 1000), *[SHELL] * 16], None),
    ],
)
def test_where_a_process_was_started_is_told_by_its_own_ancestors(host, ancestors, started_from):
    assert chain(host, *ancestors).started_from == started_from


def test_a_kernel_of_jupyter_says_so_itself(host):
    row = host.row(uid=1000, argv=("python", "-m", "ipykernel_launcher", "-f", "x.json"))
    assert (row.program, row.started_from) == ("jupyter", "jupyter")


def test_ancestors_in_a_circle_end(host):
    write(host.proc, 100, uid=1000, parent=101, comm="a")
    write(host.proc, 101, uid=1000, parent=100, comm="b")
    assert host.row(uid=1000, parent=100).started_from is None


def test_what_started_a_process_is_known_beyond_its_end(host):
    assert chain(host, ("tmux: server", ("tmux",), 1000)).started_from == "tmux"
    assert host.row(uid=1000, parent=1, now=61).started_from == "tmux"


def test_a_process_of_root_in_somebodys_login_session_says_whose_it_is(host):
    row = host.row(cgroup="0::/user.slice/user-1000.slice/session-5.scope\n")
    assert (row.started_from, who(row)) == ("session of alice", ("root", None, 0))


def test_a_login_session_is_seen_from_a_cgroup_namespace_of_the_agents_own(host):
    row = host.row(cgroup="0::/../../user.slice/user-1000.slice/session-5.scope\n")
    assert row.started_from == "session of alice"


@pytest.mark.parametrize(
    "above", ["/lxc.payload.gpu-box", f"/docker/{ID}", USER_SLICE, "/user.slice/x"]
)
def test_a_login_session_in_a_container_or_of_a_users_making_is_nobodys_here(host, above):
    row = host.row(uid=1001, cgroup=f"0::{above}/user.slice/user-1000.slice/session-5.scope\n")
    assert row.started_from is None


# ---- MPS. ----

SERVER = ("nvidia-cuda-mps-server",)


def mps(host, *others, uid=0):
    write(host.proc, 500, comm="nvidia-cuda-mps", argv=SERVER, uid=uid)
    rows = [Process(pid=500, kinds=["compute"]), *others]
    host.start()
    host.enricher.enrich([Gpu(index=0, processes=rows)], Moment(1e9, 100.0, 1e6), [])
    return rows[0]


def test_an_mps_server_without_visible_clients_has_no_single_owner(host):
    row = mps(host)
    assert (*who(row), row.note) == (None, None, 0, SHARED)


def test_an_mps_server_beside_its_clients_is_who_started_it(host):
    write(host.proc, 600, uid=1000)
    client = Process(pid=600, kinds=["mps"])
    row = mps(host, client)
    assert (*who(row), row.note) == ("root", None, 0, None)
    assert client.user == "alice"


def test_nobody_but_root_loses_a_process_by_calling_it_an_mps_server(host):
    row = mps(host, uid=1000)
    assert (*who(row), row.note) == ("alice", None, 1000, None)


def test_another_process_on_the_gpu_is_no_client_of_mps(host):
    write(host.proc, 600, uid=1000)
    assert mps(host, Process(pid=600, kinds=["compute"])).note == SHARED


def test_fields_of_a_row_survive_the_wire():
    row = Process(pid=1, container=DOCKER, user="a", user_by="subuid", started_from="tmux")
    assert msgspec.json.decode(msgspec.json.encode(row), type=Process) == row
