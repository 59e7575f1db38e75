"""What a configuration holds, typed, with every default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from pathlib import Path  # with what it imports it is a fortieth of `gpumon snapshot`


class HostEntry(msgspec.Struct, kw_only=True, frozen=True):
    """One entry of `hosts:`, taken apart."""

    name: str
    """What the faces call it; the key of the host, unique."""
    source: Literal["xmlrpc", "ssh", "nvgpu", "self", "simulated", "pushed", "gpumon"]
    address: str = ""
    """As a person would write it: "host1:8043", "https://host3:8043", "self"; shown on the page."""
    host: str = ""
    """Name in lower case, or IP address without brackets; what is connected to."""
    port: int = 0
    tls: bool = False
    """Whether it is reached by https."""
    path: str = ""
    """Of another gpumon server: where its page lies, "" or "/gpus"."""
    user: str | None = None
    """Login name, for a host that is reached by SSH; None: the one of the section `ssh`."""
    labels: dict[str, str] = {}
    drained: bool = False


class TlsConfig(msgspec.Struct, kw_only=True, frozen=True):
    """Files of this machine's certificate; `ca` verifies the other side and asks for its own."""

    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None


class SshConfig(msgspec.Struct, kw_only=True, frozen=True):
    """How the server logs in to hosts that it asks by SSH."""

    user: str | None = None
    """Login name on hosts whose entry has none; None: the name of the user who runs gpumon."""
    key_file: Path | None = None
    """Private key without a passphrase; None: those in ~/.ssh of the user who runs gpumon."""
    known_hosts: Path | None = None
    """The keys of the hosts; None: ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts."""


class OwnerRule(msgspec.Struct, kw_only=True, frozen=True):
    """One rule that turns a container of root's into a person: exactly one of the first four."""

    label: str | None = None
    """The label of the container that holds the name."""
    environment: str | None = None
    """The variable of the process that holds the name."""
    home_mount: bool = False
    """The name is that of the one folder /home/NAME that the container was given."""
    container_name: str | None = None
    """A regular expression whose group "user" is the name, in the name of the container."""
    any: bool = False
    """Whether a name counts that is no account of the host."""


class AgentConfig(msgspec.Struct, kw_only=True, frozen=True):
    """The agent on a GPU host."""

    bind: str = "0.0.0.0"  # noqa: S104  without a token the agent narrows this to loopback
    """An IP address without brackets, or "localhost"."""
    sample_interval: float = 5.0
    allow_anonymous: bool = False
    state_file: Path | None = None
    """What the agent must know after a restart. None: in systemd's StateDirectory=, if any."""
    container_socket: Path | None = None
    """The socket of Docker or Podman, to be asked for names and labels of containers."""
    owner_rules: list[OwnerRule] = []
    push: str | None = None
    """The server that every sample is pushed to: "https://gpus.example.org/gpus"."""
    push_as: str | None = None
    """The name that it is pushed under. None: that of this machine."""


class WebConfig(msgspec.Struct, kw_only=True, frozen=True):
    """The page of the server."""

    bind: str = "127.0.0.1"
    """An IP address without brackets, or "localhost"."""
    title: str = "GPUs"
    prefix: str = ""
    """"" or "/gpus": never with a slash at the end."""
    trusted_proxies: list[str] = msgspec.field(default_factory=lambda: ["127.0.0.1"])
    push_token_file: Path | None = None
    """Tokens of agents that push; None: nobody may."""
    push_accept_new: bool = False
    """Whether a host may push that is not in `hosts`."""
    vesta_token_file: Path | None = None
    """Tokens of vesta's senders, which put them into addresses; None: nobody may."""
    state_file: Path | None = None
    """When each host answered last. None: in systemd's StateDirectory=, if any."""
    hostnames: list[str] = []
    """Names that readers may call the page by, in lower case; none: by any."""
    user_header: str | None = None
    """The header in which a trusted proxy says who is logged in. None: all are anonymous."""
    admins: list[str] = []
    """Readers of the tier "admin", by the name that the proxy gives."""
    anonymous_users: Literal["names", "pseudonyms", "hidden"] = "names"
    """How the owners of processes are called for readers who are not logged in."""
    command_lines: Literal["nobody", "admins", "named"] = "nobody"
    """Who may read whole command lines."""
    refresh_seconds: float = 10.0
    colors: Literal["states", "use"] = "states"
    """"use": bars in gpumonitor's green, yellow and red, unless an address asks otherwise."""


class MetricsConfig(msgspec.Struct, kw_only=True, frozen=True):
    """What /metrics of agent and server tells."""

    users: bool = True
    """Whether it names the users of GPUs."""


class Limits(msgspec.Struct, kw_only=True, frozen=True):
    """Where the state rules draw their lines."""

    used_percent: float = 5.0
    """Utilization above this means that a GPU is used."""
    idle_minutes: float = 30.0
    """Held and unused for this long means idle."""


class Config(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that agent and server need to know, with defaults for all of it."""

    path: Path | None = None
    """Where it was read; None: no file, this machine alone."""
    web_port: int = 8042
    rpc_port: int = 8043
    rpc_timeout: float = 2.0
    hosts: list[HostEntry] = []
    """In the order of the file; `load` puts this machine here where the file has no `hosts`."""
    poll_interval: float = 5.0
    token_file: Path | None = None
    tls: TlsConfig | None = None
    ssh: SshConfig = SshConfig()
    agent: AgentConfig = AgentConfig()
    web: WebConfig = WebConfig()
    limits: Limits = Limits()
    metrics: MetricsConfig = MetricsConfig()
