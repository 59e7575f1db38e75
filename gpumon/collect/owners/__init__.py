"""Whose every byte is: container, job, and the person behind a container.

cgroups.py      the text of /proc/PID/cgroup
containers.py   which container the cgroups name
jobs.py         which batch job they name
ancestry.py     from where a process was started, as a hint
mounts.py       whose home a container was given
subuid.py       to whom the uids of a rootless container belong
runtime.py      names and labels, from the runtime's socket
rules.py        from a container of root's to a person, where the configuration says how
owners.py       all of it together

Each goes by what the process itself shows. What is not known stays empty.
"""

from gpumon.collect.owners.owners import OwnerOptions, Owners, Traces

__all__ = ["OwnerOptions", "Owners", "Traces"]
