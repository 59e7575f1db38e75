"""Whether a running daemon can go over to another configuration by SIGHUP, or has to restart.

    python -I -m gpumon.commands.reloadable agent|web OLD NEW

Prints {"changed": [...], "restart": [...]}: the settings that differ and matter to that daemon, and
those of them that it does not take over while it runs. The installation asks it before it sends
SIGHUP. Exit code 1 with the faults on stderr where one of the files can't be used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection

from gpumon.commands.reload import merge
from gpumon.config import Config
from gpumon.config.loader import load
from gpumon.errors import GpumonError

SERVERS = ("web_port", "rpc_timeout", "poll_interval", "hosts", "ssh.", "web.")
"""Settings, or beginnings of their names, that say nothing to an agent."""


def told(kind: str, old: Config, new: Config) -> dict[str, list[str]]:
    """Return what differs for a daemon, and what of it takes a restart."""
    merged, _ = merge(old, new, _hot(kind, old, new))
    return {
        "changed": [name for name in _differing(old, new) if _matters(kind, name, old, new)],
        "restart": [name for name in _differing(merged, new) if _matters(kind, name, old, new)],
    }


def _hot(kind: str, old: Config, new: Config) -> Collection[str]:
    # Imported where it is needed: a GPU host has no libraries of the server's.
    if kind == "agent":
        from gpumon.commands import agent

        return agent.hot(old, new)
    from gpumon.commands import polling

    return polling.hot(old, new)


def _differing(old: Config, new: Config) -> list[str]:
    _, names = merge(old, new, ())
    return [*names, *(["hosts"] if old.hosts != new.hosts else [])]


def _matters(kind: str, name: str, old: Config, new: Config) -> bool:
    if kind == "agent":
        return not name.startswith(SERVERS)
    samples = any(entry.source == "self" for entry in (*old.hosts, *new.hosts))
    return samples or not name.startswith("agent.")


def main() -> int:
    parser = argparse.ArgumentParser(description="Does a reload do, or does it take a restart?")
    parser.add_argument("kind", choices=("agent", "web"))
    parser.add_argument("old")
    parser.add_argument("new")
    arguments = parser.parse_args()
    try:
        answer = told(arguments.kind, load(arguments.old), load(arguments.new))
    except GpumonError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
