"""A login name in the configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpumon.config.document import Node
from gpumon.config.faults import Refused
from gpumon.config.kinds import found, text_of

# Directories have names with a domain; "\\" and "@" part it from the person.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\+-]{0,63}\$?\Z")


@dataclass(frozen=True)
class LoginName:
    """The name of an account on another host."""

    expected: str = "a login name such as gpumon-ssh"

    def read(self, node: Node) -> str:
        """Return the name. Raises Refused."""
        name = text_of(node).strip()
        if not _NAME.match(name):
            raise Refused(found(node), expected=self.expected)
        return name
