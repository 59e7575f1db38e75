"""What the cgroups of a process say: every form, and no form at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from owner_forms import (
    CLAIMED_CONTAINERS,
    CLAIMED_JOBS,
    CONTAINERS,
    DOCKER,
    GIVEN,
    ID,
    IN_A_SESSION,
    JOBS,
    POD,
    POD_,
    USER_SLICE,
)

from gpumon.collect.owners.cgroups import paths
from gpumon.collect.owners.containers import Container, as_text, container_of
from gpumon.collect.owners.jobs import job_in_environment, job_of, started_by_slurmd

SLURMD = "0::/system.slice/slurmd.service\n"


def container(text):
    found = container_of(paths(text))
    return None if found is None else as_text(found)


@pytest.mark.parametrize(
    ("text", "expected"), [row[1:] for row in CONTAINERS], ids=[row[0] for row in CONTAINERS]
)
def test_the_container_of_every_form_of_cgroup(text, expected):
    assert container(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [row[1:] for row in JOBS], ids=[row[0] for row in JOBS]
)
def test_the_job_of_every_form_of_cgroup(text, expected):
    assert job_of(paths(text)) == expected


def test_the_name_that_the_runtime_gave_stands_behind_the_id():
    assert as_text(Container("docker", ID), "train-7") == f"{DOCKER} (train-7)"


def test_a_pod_is_told_by_its_uid_whatever_its_containers_are_called():
    made = Container("docker", ID, pod=POD)
    assert as_text(made, "k8s_main") == f"pod {POD} (docker 3f4e2a1b9c0d)"


def test_a_rootless_container_knows_whose_systemd_it_runs_under():
    for parent, uid in ((USER_SLICE, 1000), ("/machine.slice", None)):
        found = container_of([f"{parent}/libpod-{ID}.scope"])
        assert found is not None
        assert found.manager_uid == uid


def test_a_name_in_a_cgroup_is_cleaned_and_cut():
    found = container("0::/lxc.payload.\x1b[31m" + "x" * 500 + "\n")
    assert found is not None
    assert found.startswith("lxc \ufffd[31mxxx")
    assert len(found) <= 4 + 64


@pytest.mark.parametrize("given", GIVEN)
def test_nobody_can_claim_a_job_by_a_cgroup_below_their_own(given):
    for claimed in CLAIMED_JOBS:
        assert job_of([given + claimed]) is None, claimed


@pytest.mark.parametrize("given", GIVEN)
def test_nobody_can_claim_a_container_of_the_host_by_a_cgroup_below_their_own(given):
    around = container_of([given])
    for claimed in CLAIMED_CONTAINERS:
        found = container_of([given + claimed])
        if around is not None:
            assert found == around, "a container is what its host made of it"
        elif found is not None:
            assert (found.manager_uid, found.of_the_host) == (1000, False), claimed


def test_a_container_of_a_login_session_or_under_a_foreign_systemd_is_none():
    for above in (IN_A_SESSION, "/user.slice/user-1000.slice/user@1001.service/user.slice"):
        for claimed in (*CLAIMED_CONTAINERS, f"/libpod-{ID}.scope"):
            assert container_of([above + claimed]) is None


@pytest.mark.parametrize(
    "path",
    [
        f"/system.slice/web.service/libpod-payload-{ID}",
        f"/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/libpod-{ID}",
        f"/slurm/uid_1000/job_5/step_0/task_0/libpod-{ID}",
        f"/system.slice/htcondor/condor_execute_slot1/libpod-{ID}",
    ],
)
def test_a_container_below_a_service_or_job_is_told_and_is_no_evidence(path):
    found = container_of([path])
    assert found is not None
    assert (as_text(found), found.of_the_host) == ("podman 3f4e2a1b9c0d", False)


@pytest.mark.parametrize(
    "path",
    [
        f"/docker/{ID}",
        f"/gpu.slice/gpu-batch.slice/docker-{ID}.scope",
        f"/machine.slice/libpod-{ID}.scope/container",
        f"/kubepods.slice/kubepods-pod{POD_}.slice/crio-{ID}.scope",
        f"/system.slice/k3s.service/kubepods-besteffort-pod{POD_}.slice:cri-containerd:{ID}",
        "/lxc.payload.gpu-box/user.slice/user-1000.slice/session-1.scope",
        f"/../docker-{ID}.scope",
    ],
)
def test_a_container_where_only_the_host_makes_them_is_evidence(path):
    found = container_of([path])
    assert found is not None
    assert found.of_the_host


def test_a_job_in_a_pod_is_that_of_the_batch_system_in_it_but_not_of_a_user_in_it():
    pod = f"/kubepods.slice/kubepods-pod{POD_}.slice/cri-containerd-{ID}.scope"
    step = "/system.slice/slurmstepd.scope/job_5/step_0/user"
    assert job_of([pod + step]) == "slurm 5.0"
    assert job_of([pod + IN_A_SESSION + step]) is None
    # Below Podman's and LXC's containers, who is in them makes the cgroups.
    assert job_of([f"/machine.slice/libpod-{ID}.scope/container{step}"]) is None


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({"SLURM_JOB_ID": "123"}, "slurm 123"),
        ({"SLURM_JOB_ID": "123", "SLURM_JOB_UID": "1000"}, "slurm 123"),
        ({"SLURM_JOB_ID": "123", "SLURM_JOB_UID": "1001"}, None),
        ({"SLURM_JOB_ID": "12"}, None),
        ({"SLURM_JOB_ID": "0123"}, None),
        ({"SLURM_JOB_ID": "12 3"}, None),
        ({"SLURM_JOB_ID": "9" * 40}, None),
        ({}, None),
    ],
)
def test_the_environment_names_a_job_of_this_user_that_slurms_own_process_names_too(
    environment, job
):
    assert job_in_environment(environment, 1000, "slurmstepd: [123.0]") == job
    assert job_in_environment(environment, 1000, "slurmstepd: [123.batch]") == job
    for title in (None, "", "slurmstepd: [1234.0]", "slurmstepd", "x slurmstepd: [123.0]"):
        assert job_in_environment(environment, 1000, title) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SLURMD, True),
        ("1:name=systemd:/system.slice/slurmd@gpu-01.service\n4:memory:/\n", True),
        ("0::/user.slice/user-1000.slice/session-5.scope\n", False),
        ("0::/system.slice/not-slurmd.service\n", False),
        # A user may have a unit of that name.
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/slurmd.service\n", False),
        ("", False),
    ],
)
def test_what_slurm_started_is_told_by_its_cgroup(text, expected):
    assert started_by_slurmd(paths(text)) == expected


PIECES = st.sampled_from(
    [
        *"/:\n.-_@\\ ",
        *("0::", "4:memory:", "docker", "kubepods", "libpod-", "lxc.payload.", ".scope", ".slice"),
        *("slurm", "uid_1", "job_", "step_", "slurmstepd.scope", "user@1000.service", "pod"),
        *("htcondor/condor_", "pbs_jobs.service/jobid/", "lsf/a/job.", "machine-", "\\x2", "x2d"),
        *(ID, ID[:-1], POD, "s5K1KKYAYG5D00", " (deleted)", "\0", "\ufffd", "ü", "\u202e", "7"),
    ]
)


@given(st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join)))
def test_no_text_whatever_raises_or_gives_what_cannot_be_shown(text):
    found = paths(text)
    for shown in (container(text), job_of(found)):
        assert shown is None or (shown.isprintable() and 0 < len(shown) < 140)
    started_by_slurmd(found)
