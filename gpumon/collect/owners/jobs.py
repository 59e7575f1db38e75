"""Which batch job a process belongs to: from its cgroups, and from its environment where those
say which batch system started it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpumon.collect.owners.cgroups import unescape
from gpumon.text import clean

JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_UID")

_LENGTH = 64
_STEP = r"(?:/step_(?P<step>\d+(?:\+\d+)?|batch|extern|interactive)(?=/|\Z))?"
_FORMS = (
    ("slurm", re.compile(rf"/slurm(?:_[^/]+)?/uid_\d+/job_(?P<id>\d+)(?=/|\Z){_STEP}")),
    (
        "slurm",
        # The node's name stands before the unit's where a host has several slurmds. From 26.05 on
        # jobs go by their SLUID: "s" and 13 digits of Crockford's base 32.
        re.compile(
            r"/(?:[^/]+_)?slurmstepd(?:_[^/]+)?\.scope/"
            rf"(?:job_(?P<id>\d+)|(?P<sluid>s[0-9A-HJKMNP-TV-Z]{{13}}))(?=/|\Z){_STEP}"
        ),
    ),
    ("pbs", re.compile(r"/(?:pbs_jobs|pbspro)\.(?:service|slice)/(?:jobid|jobs)/(?P<id>\d[^/]*)")),
    ("pbs", re.compile(r"/pbspro\.slice/pbspro-(?P<id>\d[^/]*)\.slice")),
    ("pbs", re.compile(r"/pbspro/(?P<id>\d[^/]*)")),
    ("torque", re.compile(r"/torque/(?P<id>\d[^/]*)")),
    ("lsf", re.compile(r"/lsf/[^/]+/job\.(?P<id>\d+(?:\[\d+\])?)\.\d")),
    # The only one without a job id: HTCondor's cgroups are named after the slot.
    ("htcondor", re.compile(r"/htcondor/condor_[^/]*_(?P<id>slot\d+(?:_\d+)?)(?=@|/|\Z)")),
)
_USER_MANAGER = re.compile(r"/user@\d+\.service(?:/|\Z)")
_SLURM_DAEMON = re.compile(r"/slurmd(?:@[^/]*)?\.service(?:/|\Z)")
_WHOLE_NUMBER = re.compile(r"[1-9]\d{0,18}\Z")


def job_of(paths: list[str]) -> str | None:
    """Return the job that the paths name, None where they name none, or not the same one.

    "slurm 123.0", "slurm 123.batch", "slurm 123", "slurm s5K1KKYAYG5D00.0", "pbs 12345.server",
    "torque 12345.server", "lsf 7[2]", "htcondor slot1_3".
    """
    found: dict[tuple[str, str], set[str]] = {}
    for path in paths:
        job = _in_path(path)
        if job is not None:
            system, identity, step = job
            found.setdefault((system, identity), set()).update([step] if step else [])
    if len(found) != 1:
        return None
    [((system, identity), steps)] = found.items()
    step = f".{steps.pop()}" if len(steps) == 1 else ""
    return clean(f"{system} {identity}{step}", _LENGTH)


def started_by_slurmd(paths: list[str]) -> bool:
    """Return whether Slurm started the process without giving its job a cgroup."""
    return any(_SLURM_DAEMON.search(_of_the_host(path)) for path in paths)


def job_in_environment(environment: Mapping[str, str], uid: int) -> str | None:
    """Return the Slurm job that the environment names.

    Anybody can write there what they like, so this is for processes that slurmd started, and not
    where the job is said to be another user's.
    """
    job_id, job_uid = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_UID")
    if not _WHOLE_NUMBER.match(job_id) or job_uid not in (None, str(uid)):
        return None
    return f"slurm {job_id}"


def _of_the_host(path: str) -> str:
    """Return the path down to a user's own systemd: below it the user names the cgroups."""
    return _USER_MANAGER.split(path, maxsplit=1)[0]


def _in_path(path: str) -> tuple[str, str, str | None] | None:
    path = _of_the_host(path)
    for system, form in _FORMS:
        match = form.search(path)
        if match is not None:
            named = match.groupdict()
            identity = named["id"] or named["sluid"]
            return system, unescape(identity), named.get("step")
    return None
