"""Container, job and person behind a process, put together from all evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gpumon.collect import procfs
from gpumon.collect.accounts import Accounts
from gpumon.collect.owners import cgroups, containers, jobs, rules
from gpumon.collect.owners.ancestry import Ancestors
from gpumon.collect.owners.containers import Container
from gpumon.collect.owners.mounts import Homes
from gpumon.collect.owners.rules import Evidence, Person, Undecided
from gpumon.collect.owners.runtime import Facts, Runtime
from gpumon.collect.owners.subuid import Subuids
from gpumon.config import OwnerRule
from gpumon.model import Process
from gpumon.text import clean

BY_SUBUID = "subuid"

# From the top: a container has sessions of uids of its own, and a user's systemd any cgroups.
_SESSION = re.compile(r"(?:/\.\.)*/user\.slice/user-(\d+)\.slice/session-[^/]+\.scope(?:/|\Z)")
_IMAGE_VARIABLES = ("APPTAINER_NAME", "SINGULARITY_NAME")
_VALUE_LENGTH = 256


class OwnerOptions(msgspec.Struct, frozen=True):
    """What the configuration says about owners (`agent.owner_rules`, `agent.container_socket`)."""

    rules: Sequence[OwnerRule] = ()
    container_socket: str | None = None


class Traces(msgspec.Struct, frozen=True):
    """What a process shows of where it belongs; read once, kept as long as the process is."""

    container: Container | None = None
    job: str | None = None
    session_uid: int | None = None
    """Whose login session it is in."""
    started_from: str | None = None
    evidence: Evidence | None = None
    """What the rules go by; None where none can apply."""


class Owners:
    """Reads the traces of processes and fills rows from them.

    `proc` is where /proc is mounted, `subuid` the file of uid ranges.
    """

    def __init__(
        self,
        accounts: Accounts,
        options: OwnerOptions | None = None,
        *,
        proc: str = "/proc",
        subuid: str = "/etc/subuid",
    ) -> None:
        self._accounts = accounts
        self._proc = proc
        options = options or OwnerOptions()
        self._rules = options.rules
        self._subuids = Subuids(subuid)
        self._ancestors = Ancestors(proc)
        self._homes = Homes(proc)
        socket = options.container_socket
        self._runtime = None if socket is None else Runtime(socket)
        in_rules = [rule.environment for rule in self._rules if rule.environment is not None]
        wanted = (*jobs.JOB_VARIABLES, *_IMAGE_VARIABLES, *in_rules)
        self._wanted = {name.encode() for name in wanted}
        self._wants_homes = any(rule.home_mount for rule in self._rules)

    def begin(self, now: float, errors: list[str]) -> None:
        """Begin a sample at `now` (seconds, monotonic); say in `errors` what holds for all."""
        self._ancestors.begin()
        self._homes.begin(now, errors)
        if self._runtime is not None:
            self._runtime.begin(now)
            if self._runtime.failure is not None:
                errors.append(self._runtime.failure)

    # ---- Reading, for a process that is new or was not looked at for a while. ----

    def read(self, pid: int, uid: int | None, program: str | None, before: Traces | None) -> Traces:
        """Return the traces of a process; `before` are those that were read of it last time.

        Raises ProcessLookupError when it has ended. What can't be read is not known.
        """
        folder = f"{self._proc}/{pid}"
        try:
            paths = cgroups.paths(procfs.read_cgroups(folder))
        except PermissionError:
            paths = []
        container = containers.container_of(paths)
        job = jobs.job_of(paths)
        if job is None and uid is not None and jobs.started_by_slurmd(paths):
            title = self._ancestors.slurm_step(pid)
            job = jobs.job_in_environment(self._environment(folder) or {}, uid, title)
        # Where only the environment tells of a container, it is of a user's making like what is
        # below a user's own systemd: no evidence of anybody else.
        of_the_host = container is not None and container.of_the_host
        if container is None or container.runtime == "apptainer":
            container = self._apptainer(folder) or container
        started_from = None
        if before is not None:
            started_from = before.started_from  # its ancestors may have ended since
        elif uid is not None:
            started_from = self._ancestors.started_from(pid, uid, program)
        evidence = None
        if container is not None and of_the_host and self._rules:
            homes = self._homes.of(folder) if self._wants_homes else frozenset()
            evidence = Evidence(container, self._environment(folder), homes)
        return Traces(container, job, _session_uid(paths), started_from, evidence)

    def _environment(self, folder: str) -> dict[str, str] | None:
        """Return the variables that anything here goes by; the others are not kept."""
        try:
            data = procfs.read_environment(folder)
        except (OSError, ValueError):  # a zombie has none
            return None
        found: dict[str, str] = {}
        for entry in data.split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name in self._wanted:
                key = name.decode()
                found.setdefault(key, value.decode("utf-8", "replace")[:_VALUE_LENGTH])
        return found

    def _apptainer(self, folder: str) -> Container | None:
        """Return the Apptainer container that the environment names, where it is in one.

        Its variables alone prove nothing: the process must have mounts of its own too.
        """
        try:
            own = procfs.mount_namespace(folder)
            if own == procfs.mount_namespace(f"{self._proc}/1"):
                return None
        except OSError:
            return None
        environment = self._environment(folder) or {}
        images = [clean(environment.get(variable, ""), 64) for variable in _IMAGE_VARIABLES]
        return next((Container("apptainer", image) for image in images if image), None)

    # ---- Filling, in each sample. ----

    def fill(self, row: Process, traces: Traces, owner_known: bool) -> None:
        """Set container, job, and where it was started; and the person behind a container.

        `row` has its uid and user. `owner_known`: whether the account database has answered.
        """
        row.job = traces.job
        row.started_from = traces.started_from
        session_uid = traces.session_uid
        if row.started_from is None and session_uid is not None and session_uid != row.uid:
            row.started_from = f"session of {self._accounts.name(session_uid)[0]}"
        container = traces.container
        if container is None:
            return
        facts, _ = self._facts(container)
        row.container = containers.as_text(container, None if facts is None else facts.name)
        if row.uid is None or not owner_known:
            return
        unresolved = row.user == f"uid:{row.uid}"
        found = self._person_of_range(row.uid, container) if unresolved else None
        nobodys = row.uid == 0 or (unresolved and self._has_no_account(row.uid))
        if found is None and nobodys and traces.evidence is not None:
            found = self._person_by_rule(traces.evidence)
        if found is not None:
            row.user, row.user_by = found.name, found.by

    def _has_no_account(self, uid: int) -> bool:
        """Return whether a uid without a name is nobody's, and not of a directory that is down."""
        return self._accounts.are_local() or bool(self._subuids.owners_of(uid))

    def _person_of_range(self, uid: int, container: Container) -> Person | None:
        """Return the account that a uid of a rootless container was given to.

        Two things must agree: the container runs under this account's own systemd, and the uid is
        in a range of this account and of no other.
        """
        if container.manager_uid is None:
            return None
        name = self._accounts.known_name(container.manager_uid)
        owners = self._subuids.owners_of(uid)
        if name is None or len(owners) != 1 or not owners <= {name, str(container.manager_uid)}:
            return None
        return Person(name, BY_SUBUID)

    def _person_by_rule(self, evidence: Evidence) -> Person | None:
        try:
            return rules.person(self._rules, evidence, self._facts, self._accounts.exists)
        except Undecided:
            return None

    def _facts(self, container: Container) -> tuple[Facts | None, bool]:
        """Return what the runtime says of a container; it has only those with an id of its kind.

        A user's own containers are none of the runtime's, though their cgroups may say so.
        """
        of_the_socket = container.runtime in _OF_THE_SOCKET and container.of_the_host
        if self._runtime is None or not of_the_socket:
            return None, True
        return self._runtime.facts(container.id)


_OF_THE_SOCKET = frozenset({"docker", "podman", "container"})


def _session_uid(paths: list[str]) -> int | None:
    for path in paths:
        match = _SESSION.match(path)
        if match is not None:
            return int(match[1])
    return None
