"""Texts of /proc/PID/cgroup as runtimes and batch systems make them, and what they say."""

from __future__ import annotations

ID = "3f4e2a1b9c0d" + "7" * 52
OTHER = "0badc0ffee00" + "1" * 52
POD = "2c4b2241-5c01-11e9-8e4e-42010a800002"
POD_ = POD.replace("-", "_")
HASH = "0123456789abcdef0123456789abcdef"

USER_SLICE = "/user.slice/user-1000.slice/user@1000.service"
DOCKER = "docker 3f4e2a1b9c0d"
PODMAN = "podman 3f4e2a1b9c0d"

# What it is, the text, the container.
CONTAINERS = [
    ("docker, cgroupfs, v1", f"12:memory:/docker/{ID}\n11:cpu,cpuacct:/docker/{ID}\n", DOCKER),
    ("docker, cgroupfs, v2", f"0::/docker/{ID}\n", DOCKER),
    (
        "docker, systemd, v1",
        f"3:cpuset:/system.slice/docker-{ID}.scope\n1:name=systemd:/\n",
        DOCKER,
    ),
    ("docker, systemd, v2", f"0::/system.slice/docker-{ID}.scope\n", DOCKER),
    ("docker, with an init system in it", f"0::/docker/{ID}/init.scope\n", DOCKER),
    ("docker, rootless", f"0::{USER_SLICE}/user.slice/docker-{ID}.scope\n", DOCKER),
    ("docker, from the cgroup namespace of a neighbour", f"0::/../docker-{ID}.scope\n", DOCKER),
    ("a cgroup that was removed", f"0::/docker/{ID} (deleted)\n", DOCKER),
    ("a parent of the site's own", f"0::/site/batch/{ID}\n", "container 3f4e2a1b9c0d"),
    ("cgroupfs, from a cgroup namespace", f"0::/../{ID}\n", "container 3f4e2a1b9c0d"),
    ("podman", f"0::/machine.slice/libpod-{ID}.scope/container\n", PODMAN),
    ("podman, cgroupfs", f"13:pids:/libpod_parent/libpod-{ID}\n", PODMAN),
    ("podman, rootless", f"0::{USER_SLICE}/user.slice/libpod-{ID}.scope/container\n", PODMAN),
    (
        "podman, rootless, in a podman pod",
        f"0::{USER_SLICE}/user.slice/user-libpod_pod_{OTHER}.slice/libpod-{ID}.scope\n",
        PODMAN,
    ),
    ("podman, quadlet", f"0::/system.slice/web.service/libpod-payload-{ID}\n", PODMAN),
    ("nerdctl", f"0::/system.slice/nerdctl-{ID}.scope\n", "containerd 3f4e2a1b9c0d"),
    (
        "kubernetes, containerd, systemd",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_}.slice/"
        f"cri-containerd-{ID}.scope\n",
        f"pod {POD} (containerd 3f4e2a1b9c0d)",
    ),
    (
        "kubernetes, guaranteed, cri-o",
        f"0::/kubepods.slice/kubepods-pod{POD_}.slice/crio-{ID}.scope/container\n",
        f"pod {POD} (cri-o 3f4e2a1b9c0d)",
    ),
    (
        "kubernetes, best effort, docker",
        f"5:devices:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{POD_}.slice/"
        f"docker-{ID}.scope\n",
        f"pod {POD} (docker 3f4e2a1b9c0d)",
    ),
    (
        "kubernetes, cgroupfs",
        f"4:memory:/kubepods/burstable/pod{POD}/{ID}\n",
        f"pod {POD} (container 3f4e2a1b9c0d)",
    ),
    (
        "kubernetes, cgroupfs, guaranteed, a static pod",
        f"4:memory:/kubepods/pod{HASH}/{ID}\n",
        f"pod {HASH} (container 3f4e2a1b9c0d)",
    ),
    (
        "kubernetes, containerd with colons",
        f"12:cpu:/system.slice/containerd.service/kubepods-besteffort-pod{POD_}.slice:"
        f"cri-containerd:{ID}\n",
        f"pod {POD} (containerd 3f4e2a1b9c0d)",
    ),
    (
        "kubernetes in docker (kind)",
        f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{POD_}.slice/"
        f"cri-containerd-{ID}.scope\n",
        f"pod {POD} (containerd 3f4e2a1b9c0d)",
    ),
    ("kubernetes, the pod alone", f"0::/kubepods/burstable/pod{POD}\n", f"pod {POD}"),
    (
        "kubernetes, seen from a pod",
        f"0::/../../pod{POD}/{ID}\n",
        f"pod {POD} (container 3f4e2a1b9c0d)",
    ),
    ("lxc and incus, v2", "0::/lxc.payload.gpu-box/init.scope\n", "lxc gpu-box"),
    ("lxc, v1", "4:memory:/lxc/gpu-box\n1:name=systemd:/lxc/gpu-box/init.scope\n", "lxc gpu-box"),
    ("proxmox", "0::/lxc/101/ns/system.slice/app.service\n", "lxc 101"),
    ("docker in lxc", f"0::/lxc.payload.box/system.slice/docker-{ID}.scope\n", "lxc box"),
    (
        "docker in docker: the outer one, which the host knows",
        f"0::/docker/{ID}/docker/{OTHER}\n",
        DOCKER,
    ),
    ("nspawn", "0::/machine.slice/machine-gpu\\x2dbox.scope/payload\n", "machine gpu-box"),
    (
        "nspawn as a service",
        "0::/machine.slice/systemd-nspawn@gpu\\x2dbox.service/payload/system.slice\n",
        "machine gpu-box",
    ),
    (
        "apptainer with limits",
        f"0::{USER_SLICE}/user.slice/apptainer-4711.scope\n",
        "apptainer 4711",
    ),
    ("apptainer, cgroupfs", "9:devices:/apptainer/4711\n", "apptainer 4711"),
    ("singularity", "9:devices:/singularity/4711\n", "apptainer 4711"),
    # What is no container.
    ("nothing", "", None),
    ("the root", "0::/\n", None),
    ("a service", "0::/system.slice/nginx.service\n", None),
    ("docker's own daemon", "0::/system.slice/docker.service\n", None),
    ("a build of docker's", "0::/docker/buildkit/abcdefghij\n", None),
    ("conmon, which is outside", f"0::/machine.slice/libpod-conmon-{ID}.scope\n", None),
    ("crio's conmon", f"0::/system.slice/crio-conmon-{ID}.scope\n", None),
    ("lxc's monitor, which is outside", "0::/lxc.monitor.gpu-box\n", None),
    ("a virtual machine", "0::/machine.slice/machine-qemu\\x2d1\\x2dwin.scope/emulator\n", None),
    ("a login", "0::/user.slice/user-1000.slice/session-5.scope\n", None),
    ("an id that is too short", f"0::/docker/{ID[:40]}\n", None),
    ("an id with more to it", f"0::/system.slice/docker-{ID}.service\n", None),
    ("a hash of another length", "4:memory:/process_api/cc2b5f123971b3265c95c0d41870f9d7\n", None),
    ("two containers at once", f"4:memory:/docker/{ID}\n3:cpu:/docker/{OTHER}\n", None),
]

# What it is, the text, the job.
JOBS = [
    ("slurm, v1", "9:freezer:/slurm/uid_1000/job_123/step_0/task_0\n", "slurm 123.0"),
    (
        "slurm, v1, hierarchies of different depth",
        "10:devices:/slurm/uid_1000/job_123/step_0\n4:memory:/slurm/uid_1000/job_123/step_0/task_2\n"
        "3:cpuset:/slurm/uid_1000/job_123\n1:name=systemd:/system.slice/slurmd.service\n",
        "slurm 123.0",
    ),
    ("slurm, v1, node", "4:memory:/slurm_gpu-01/uid_1000/job_7/step_batch\n", "slurm 7.batch"),
    ("slurm, v2", "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n", "slurm 123.0"),
    (
        "slurm, v2, node",
        "0::/system.slice/gpu-01_slurmstepd.scope/job_123/step_extern/user/task_0\n",
        "slurm 123.extern",
    ),
    (
        "slurm, v2, node behind",
        "0::/system.slice/slurmstepd_gpu-01.scope/job_123/step_interactive/user/task_0\n",
        "slurm 123.interactive",
    ),
    (
        "slurm, v2, SLUID",
        "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0\n",
        "slurm s5K1KKYAYG5D00.0",
    ),
    (
        "slurm, a component of a heterogeneous step",
        "0::/system.slice/slurmstepd.scope/job_123/step_4+1/user/task_special\n",
        "slurm 123.4+1",
    ),
    ("slurm, a job without a step", "0::/system.slice/slurmstepd.scope/job_9\n", "slurm 9"),
    (
        "slurm, a step of an unknown kind",
        "0::/system.slice/slurmstepd.scope/job_9/step_new/user\n",
        "slurm 9",
    ),
    (
        "slurm in a pod",
        f"0::/kubepods.slice/kubepods-pod{POD_}.slice/cri-containerd-{ID}.scope/system.slice/"
        "slurmstepd.scope/job_5/step_0/user/task_0\n",
        "slurm 5.0",
    ),
    (
        "podman in slurm",
        f"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/libpod-{ID}\n",
        "slurm 5.0",
    ),
    ("pbs, v1", "4:memory:/pbs_jobs.service/jobid/12345.pbs-server\n", "pbs 12345.pbs-server"),
    ("pbs, v2", "0::/pbs_jobs.service/jobs/12345.server\n", "pbs 12345.server"),
    ("pbs, an array", "4:cpu:/pbs_jobs.service/jobid/12345[2].server\n", "pbs 12345[2].server"),
    ("pbs 18", "4:cpu:/pbspro.slice/pbspro-12.head\\x2dnode.slice\n", "pbs 12.head-node"),
    ("pbs 14", "4:blkio:/pbspro/0.headnode\n", "pbs 0.headnode"),
    ("torque", "3:cpuset:/torque/8845236.nyx.example.edu\n", "torque 8845236.nyx.example.edu"),
    ("lsf", "5:freezer:/lsf/cluster1/job.19.12345.123443\n", "lsf 19"),
    ("lsf, an array", "5:freezer:/lsf/cluster1/job.7[2].15512.1596744537\n", "lsf 7[2]"),
    (
        "htcondor",
        "0::/system.slice/htcondor/condor_var_lib_condor_execute_slot1_23@node\n",
        "htcondor slot1_23",
    ),
    ("htcondor, v1", "4:memory:/htcondor/condor_execute_slot1\n", "htcondor slot1"),
    # What is no job.
    ("nothing", "", None),
    ("slurm's own daemon", "0::/system.slice/slurmd.service\n", None),
    ("slurm's waiting room", "0::/system.slice/slurmstepd.scope/system\n", None),
    ("a number that is none", "0::/system.slice/slurmstepd.scope/job_12x/step_0\n", None),
    ("a letter that no SLUID has", "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D0I\n", None),
    ("a SLUID elsewhere", "0::/system.slice/s5K1KKYAYG5D00/step_0\n", None),
    ("pbs's own daemon", "0::/system.slice/pbs.service\n", None),
    ("kubernetes", f"0::/kubepods/burstable/pod{POD}/{ID}\n", None),
    (
        "a name that a user gave",
        f"0::{USER_SLICE}/app.slice/slurmstepd.scope/job_99/step_0\n",
        None,
    ),
    (
        "two jobs at once",
        "4:memory:/slurm/uid_0/job_1/step_0\n3:cpu:/slurm/uid_0/job_2/step_0\n",
        None,
    ),
]

# Cgroups that a user, a service, a job or a container can have made in what they were given.
IN_A_SESSION = "/user.slice/user-1000.slice/session-5.scope"
GIVEN = [
    IN_A_SESSION,
    f"{IN_A_SESSION}/system.slice",
    f"{USER_SLICE}/app.slice/run-r1.scope",
    "/user.slice/user-1000.slice",
    "/user.slice/user-1000.slice/user@1001.service/user.slice",  # not what systemd makes
    "/user/1000.user/1.session",
    "/system.slice/jupyterhub.service",
    "/system.slice/jupyter-alice-singleuser.service/kubepods.slice",
    "/system.slice/run-u7.scope",
    "/system.slice/slurmstepd.scope/system/user@1000.service",
    "/lxc.payload.box",
    "/machine.slice/machine-box.scope/payload",
    f"{USER_SLICE}/user.slice/libpod-{OTHER}.scope/container",
]
CLAIMED_JOBS = [
    "/job_99",
    "/slurm/uid_1001/job_99/step_0/task_0",
    "/slurmstepd.scope/job_99/step_0/user/task_0",
    "/system.slice/slurmstepd.scope/job_99/step_0",
    "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0",
    "/pbs_jobs.service/jobid/12345.server",
    "/pbspro.slice/pbspro-12.head.slice",
    "/torque/8845236.nyx",
    "/lsf/cluster1/job.19.12345.123443",
    "/htcondor/condor_execute_slot1",
    "/system.slice/htcondor/condor_execute_slot1_2@node",
]
CLAIMED_CONTAINERS = [
    f"/docker/{ID}",
    f"/docker-{ID}.scope",
    f"/system.slice/docker-{ID}.scope",
    f"/site/{ID}",
    f"/kubepods.slice/kubepods-pod{POD_}.slice/cri-containerd-{ID}.scope",
    f"/kubepods/pod{POD}/{ID}",
    f"/kubepods/pod{POD}",
    "/lxc.payload.gpu-box",
    "/lxc/gpu-box",
    "/machine.slice/machine-gpu.scope",
    "/apptainer/4711",
]
