"""How long and how often is measured, and what is there to measure with."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path

from agent_cost.installed import Installed
from agent_cost.peers import Peer


@dataclass(frozen=True)
class Settings:
    """For all sections. The defaults are a full run's."""

    folder: Path
    """For everything that is written; deleted in the end."""
    own: Installed
    """What is measured."""
    peers: list[Peer] = field(default_factory=list)
    sizes: tuple[int, ...] = (5, 20, 40)
    """Processes per GPU."""
    rounds: int = 7
    samples: int = 3
    """Per round."""
    load_seconds: float = 0.3
    """Per round, request and condition."""
    growth_samples: int = 15_000
    command_rounds: int = 7

    def say(self, text: str) -> None:
        """Tell the person who waits how far it is; the tables go to standard output."""
        print(f"bench: {text}", file=sys.stderr, flush=True)


def quick(settings: Settings) -> Settings:
    """Return settings for a minute's run."""
    return dataclasses.replace(
        settings,
        sizes=(5, 40),
        rounds=3,
        samples=2,
        load_seconds=0.15,
        growth_samples=600,
        command_rounds=3,
    )
