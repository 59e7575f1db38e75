"""Which batch job a process belongs to: from its cgroups, and from its environment where those
say which batch system started it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpumon.collect.owners.cgroups import unescape
from gpumon.collect.owners.containers import below_container
from gpumon.text import clean

JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_UID")

_LENGTH = 64
# Each form stands where the batch system puts it, with nothing of anybody else's above: at the top
# or in the system's own slice, which is not seen from a cgroup namespace in it ("/../..").
_TOP = r"(?:/\.\.)*"
_SYSTEM = r"(?:(?:/\.\.)+|(?:/\.\.)*/system\.slice)"
_STEP = r"(?:/step_(?P<step>\d+(?:\+\d+)?|batch|extern|interactive)(?=/|\Z))?"
_FORMS = (
    ("slurm", re.compile(rf"{_TOP}/slurm(?:_[^/]+)?/uid_\d+/job_(?P<id>\d+)(?=/|\Z){_STEP}")),
    (
        "slurm",
        # The node's name stands before the unit's where a host has several slurmds. From 26.05 on
        # jobs go by their SLUID: "s" and 13 digits of Crockford's base 32.
        re.compile(
            rf"{_SYSTEM}/(?:[^/]+_)?slurmstepd(?:_[^/]+)?\.scope/"
            rf"(?:job_(?P<id>\d+)|(?P<sluid>s[0-9A-HJKMNP-TV-Z]{{13}}))(?=/|\Z){_STEP}"
        ),
    ),
    (
        "pbs",
        re.compile(
            rf"{_TOP}/(?:pbs_jobs|pbspro)\.(?:service|slice)/(?:jobid|jobs)/(?P<id>\d[^/]*)"
        ),
    ),
    ("pbs", re.compile(rf"{_TOP}/pbspro\.slice/pbspro-(?P<id>\d[^/]*)\.slice")),
    ("pbs", re.compile(rf"{_TOP}/pbspro/(?P<id>\d[^/]*)")),
    ("torque", re.compile(rf"{_TOP}/torque/(?P<id>\d[^/]*)")),
    ("lsf", re.compile(rf"{_TOP}/lsf/[^/]+/job\.(?P<id>\d+(?:\[\d+\])?)\.\d")),
    # The only one without a job id: HTCondor's cgroups are named after the slot.
    (
        "htcondor",
        re.compile(
            rf"(?:{_TOP}|{_SYSTEM})/htcondor/condor_[^/]*_(?P<id>slot\d+(?:_\d+)?)(?=@|/|\Z)"
        ),
    ),
)
_SLURM_DAEMON = re.compile(rf"{_SYSTEM}/slurmd(?:@[^/]*)?\.service(?:/|\Z)")
_STEP_TITLE = re.compile(r"slurmstepd: \[(?P<id>\d+)[.\]]")
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
    return any(_SLURM_DAEMON.match(path) for path in paths)


def job_in_environment(environment: Mapping[str, str], uid: int, title: str | None) -> str | None:
    """Return the Slurm job that the environment names, where Slurm's own process says the same.

    Anybody can write into an environment what they like. `title` is that of the ancestor that
    belongs to root and is called slurmstepd, "slurmstepd: [123.0]".
    """
    job_id, job_uid = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_UID")
    if not _WHOLE_NUMBER.match(job_id) or job_uid not in (None, str(uid)):
        return None
    named = None if title is None else _STEP_TITLE.match(title)
    return f"slurm {job_id}" if named is not None and named["id"] == job_id else None


def _in_path(path: str) -> tuple[str, str, str | None] | None:
    for part in (path, below_container(path)):
        for system, form in _FORMS:
            match = None if part is None else form.match(part)
            if match is not None:
                named = match.groupdict()
                identity = named["id"] or named["sluid"]
                return system, unescape(identity), named.get("step")
    return None
