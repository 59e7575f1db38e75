"""What to do about what is wasted or broken: one short sentence each."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.cluster.visible import SOMEBODY
from gpumon.states import RESET_WANTED
from gpumon.web.words import listed

AGENT_LOG = "On the host: journalctl -u gpumon-agent"

_HOST: dict[str, str] = {
    "refused": "Is 'gpumon agent' running on the host?",
    "no route": "Is the host up? Look at its network and at firewalls on the way",
    "name not found": "Correct the name in config.yml or in DNS",
    "timed out": "Is the host up, and 'gpumon agent' running on it?",
    "bad answer": "Is it gpumon that listens there? Else update the agent",
    "wrong token": "Give agent and server the same token",
    "version too old": "Update the agent on the host",
    "tls": "Look at the certificates of host and server",
    "silent": "Is its agent running, and does it reach this server?",
    "server silent": "Is 'gpumon web' running on that server?",
    "loop": "Take its entry out of config.yml",
    "host key": "Compare the host's key, then correct known_hosts on the server",
    "login refused": "Put the server's public key into authorized_keys on the host",
    "no library": "Install NVIDIA's driver on the host",
    "no driver": "On the host: nvidia-smi, dmesg",
    "version mismatch": "Reboot the host: its driver was upgraded",
    "no GPU": "On the host: lspci; without GPUs take it out of config.yml",
    "no permission": "Let the agent's user read /dev/nvidia*",
}


def for_host(kind: str | None) -> str:
    """Return what to do about a host that gives no readings; `kind` is its `reason_kind`."""
    return _HOST.get(kind or "", AGENT_LOG)


def for_error(kind: str | None) -> str:
    """Return what to do about an error of a host that answers; its sentence says most of it."""
    return _HOST.get(kind or "", "")


_FAULT = (
    ("could not be replaced", "Drain the GPU and have it replaced"),
    ("fallen off the bus", "Drain the host, power-cycle it"),
    (RESET_WANTED, "Drain the GPU, then do so"),
    ("lost", "Drain the host, power-cycle it"),
    ("uncorrected memory error", "Reset the GPU once its jobs are done; replace it if they recur"),
    ("slowed down", "Look at the host's cooling and power supply"),
)
"""By the words of a fault, the gravest first: of several, one cure is shown. The page of the host
has what to do about each."""


def for_fault(reason: str) -> str:
    """Return what to do about a broken GPU; `reason` is what `states.fault_of` said."""
    return next((what for sign, what in _FAULT if sign in reason), "See the page of the host")


UNREADABLE = "On the host: nvidia-smi, journalctl -u gpumon-agent"
HIDDEN = "Ask an admin whose it is: names are hidden from you"
GHOST = "Look on the host for a zombie or a process in a container"


def for_idle(users: Iterable[str | None]) -> str:
    """Return whom to ask about a GPU that `users` hold; None is an owner who is not known."""
    some = list(users)
    names = listed([user for user in some if user is not None and user != SOMEBODY])
    if names:
        return f"Ask {names}"
    return HIDDEN if SOMEBODY in some else "Find out on the host whose process it is"
