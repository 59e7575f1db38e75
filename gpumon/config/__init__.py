"""config.yml -> typed Config: strict, with every fault reported at once.

document.py   YAML text -> nodes that know their line; nothing is constructed from it
kinds.py      what a value may look like, in code and in words
settings.py   the table of all settings
target.py     one host as people write it
hosts.py      the list of hosts, and their names
rules.py      one rule of agent.owner_rules
patterns.py   which regular expressions no name can keep busy
walk.py       the steps through a document: into a mapping, to a value
file.py       which file it is, and its text
loader.py     reads all of it by the table, lays variables and flags over it

The types stand here; `load` is imported from `loader`, by the commands that read a file: the rules
of the states need a type only, and should not pay for a YAML parser.
"""

from gpumon.config.types import (
    AgentConfig,
    Config,
    HostEntry,
    Limits,
    MetricsConfig,
    OwnerRule,
    SshConfig,
    TlsConfig,
    WebConfig,
)

__all__ = [
    "AgentConfig",
    "Config",
    "HostEntry",
    "Limits",
    "MetricsConfig",
    "OwnerRule",
    "SshConfig",
    "TlsConfig",
    "WebConfig",
]
