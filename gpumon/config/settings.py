"""The table of all settings. Faults, variables, flags and docs/configuration.md follow it."""

from __future__ import annotations

import json

import msgspec

from gpumon.config.kinds import (
    BindAddress,
    FilePath,
    HeaderName,
    HostName,
    Kind,
    ListOf,
    MachineName,
    Network,
    Number,
    OneOf,
    ServerUrl,
    Text,
    UrlPrefix,
    YesNo,
)
from gpumon.config.logins import LoginName
from gpumon.config.rules import OwnerRuleKind
from gpumon.config.types import Config

PORT = Number(1, 65535, whole=True)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One key. Its default stands in gpumon/config/types.py."""

    name: str
    """With its section: "agent.bind"."""
    kind: Kind
    help: str
    flag: str | None = None
    variable: str | None = None

    @property
    def default(self) -> object:
        """The value that holds without the key; None: there is none."""
        value: object = Config()
        for part in self.name.split("."):
            value = getattr(value, part) if value is not None else None
        return value


_ALL = (
    Setting(
        name="web_port",
        kind=PORT,
        help="TCP port of the web page.",
        flag="--web-port",
        variable="GPUMON_WEB_PORT",
    ),
    Setting(
        name="rpc_port",
        kind=PORT,
        help="TCP port of the agent on every host that names no port of its own.",
        flag="--rpc-port",
        variable="GPUMON_RPC_PORT",
    ),
    Setting(
        name="rpc_timeout",
        kind=Number(0.1, 300, "seconds"),
        help="Seconds that one poll of one host may take in all.",
    ),
    Setting(
        name="poll_interval",
        kind=Number(0.5, 3600, "seconds"),
        help="Seconds between two polls of a host.",
    ),
    Setting(
        name="token_file",
        kind=FilePath(),
        help="File with one token a line; the first is sent, all are accepted.",
        flag="--token-file",
        variable="GPUMON_TOKEN_FILE",
    ),
    Setting(
        name="tls.cert",
        kind=FilePath(),
        help="Certificate of this machine, PEM, with its chain.",
    ),
    Setting(name="tls.key", kind=FilePath(), help="Key of that certificate, PEM, no password."),
    Setting(
        name="tls.ca",
        kind=FilePath(),
        help="Authority that certificates of the other side are verified with, PEM.",
    ),
    Setting(
        name="ssh.user",
        kind=LoginName(),
        help="Login name on hosts asked by SSH whose entry names none.",
    ),
    Setting(
        name="ssh.key_file",
        kind=FilePath(),
        help="Private key to log in with, no passphrase.",
    ),
    Setting(
        name="ssh.known_hosts",
        kind=FilePath(),
        help="Keys of the hosts, as ssh-keyscan prints them; no other key is accepted.",
    ),
    Setting(
        name="agent.bind",
        kind=BindAddress(),
        help="Address that the agent answers on; without a token it is narrowed to loopback.",
        flag="--bind",
        variable="GPUMON_AGENT_BIND",
    ),
    Setting(
        name="agent.sample_interval",
        kind=Number(0.5, 3600, "seconds"),
        help="Seconds between two samples of the GPUs.",
    ),
    Setting(
        name="agent.allow_anonymous",
        kind=YesNo(),
        help="Whether the agent answers beyond loopback to callers without a token.",
    ),
    Setting(
        name="agent.state_file",
        kind=FilePath(),
        help="File in which the agent remembers this host's GPUs and their last faults.",
    ),
    Setting(
        name="agent.container_socket",
        kind=FilePath(),
        help="Socket of Docker or Podman, to be asked for names and labels of containers.",
    ),
    Setting(
        name="agent.owner_rules",
        kind=ListOf(OwnerRuleKind()),
        help="How a container of root's becomes a person's; the first rule that fits wins.",
    ),
    Setting(
        name="agent.push",
        kind=ServerUrl(),
        help="Server that the agent sends every sample to; for hosts that it can't reach.",
        flag="--push",
        variable="GPUMON_AGENT_PUSH",
    ),
    Setting(
        name="agent.push_as",
        kind=MachineName(),
        help="Name that the agent pushes under; this machine's own where it is missing.",
    ),
    Setting(
        name="web.bind",
        kind=BindAddress(),
        help="Address that the web page is served on.",
        flag="--bind",
        variable="GPUMON_WEB_BIND",
    ),
    Setting(name="web.title", kind=Text(100), help="Title of the page."),
    Setting(
        name="web.prefix",
        kind=UrlPrefix(),
        help="Path under which a proxy serves the page without stripping it.",
    ),
    Setting(
        name="web.trusted_proxies",
        kind=ListOf(Network()),
        help="Addresses or networks whose X-Forwarded headers are believed.",
    ),
    Setting(
        name="web.push_token_file",
        kind=FilePath(),
        help="File with the tokens of agents that push, TOKEN or NAME TOKEN a line; opens push.",
    ),
    Setting(
        name="web.push_accept_new",
        kind=YesNo(),
        help="Whether a host may push that does not stand in hosts.",
    ),
    Setting(
        name="web.vesta_token_file",
        kind=FilePath(),
        help="The same for vesta's senders, which put their token into the address.",
    ),
    Setting(
        name="web.state_file",
        kind=FilePath(),
        help="File in which the server remembers when each host answered last.",
    ),
    Setting(
        name="web.hostnames",
        kind=ListOf(HostName()),
        help="Names that readers call the page by; none: by any name.",
    ),
    Setting(
        name="web.user_header",
        kind=HeaderName(),
        help="Header in which a trusted proxy says who is logged in.",
    ),
    Setting(
        name="web.admins",
        kind=ListOf(Text(64)),
        help="Readers who are admins, by the name that the proxy gives.",
    ),
    Setting(
        name="web.anonymous_users",
        kind=OneOf(("names", "pseudonyms", "hidden")),
        help="How owners of processes are called for readers who are not logged in.",
    ),
    Setting(
        name="web.command_lines",
        kind=OneOf(("nobody", "admins", "named")),
        help="Who may read whole command lines; they may hold secrets.",
    ),
    Setting(
        name="web.refresh_seconds",
        kind=Number(2, 3600, "seconds"),
        help="Seconds between two refreshes of an open page.",
    ),
    Setting(
        name="web.colors",
        kind=OneOf(("states", "use")),
        help="Colours of the bars: by state, or green, yellow and red by use.",
    ),
    Setting(
        name="metrics.users",
        kind=YesNo(),
        help="Whether /metrics of agent and server names the users of GPUs.",
    ),
    Setting(
        name="limits.used_percent",
        kind=Number(0, 99),
        help="Utilization above this means that a GPU is used.",
    ),
    Setting(
        name="limits.idle_minutes",
        kind=Number(1, 10080),
        help="A GPU that is held and unused for so many minutes is idle.",
    ),
)

SETTINGS = {setting.name: setting for setting in _ALL}
"""All settings but the hosts, by name."""

SECTIONS = tuple(dict.fromkeys(name.split(".")[0] for name in SETTINGS if "." in name))

HOST_KEYS: dict[str, str] = {
    "name": "What the page calls the host; the address without its port where it is missing.",
    "address": "Any of the forms of a plain entry.",
    "labels": "Texts to sort and filter by, such as room: b12.",
    "drained": "Whether its GPUs are taken out of use; true shows them as drained.",
}
"""The keys of an entry of `hosts` in its long form, with their help."""

TOP_KEYS = (*(name for name in SETTINGS if "." not in name), "hosts", *SECTIONS)


def keys_of(section: str) -> list[str]:
    """Return the keys of a section, without its name."""
    start = section + "."
    return [name.removeprefix(start) for name in SETTINGS if name.startswith(start)]


def as_yaml(value: object) -> str:
    """Return a default as it is written in config.yml."""
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)
