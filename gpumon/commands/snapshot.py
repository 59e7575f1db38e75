"""`gpumon snapshot`: this host's GPUs once, without any daemon."""

from __future__ import annotations

import argparse
import shutil
import time

from gpumon.commands.one_sample import one_sample
from gpumon.errors import CollectError
from gpumon.model import encode
from gpumon.terminal.snapshot import render

PIPE_WIDTH = 120


def run(arguments: argparse.Namespace) -> int:
    """Print the snapshot; 1 when the driver could not be asked, which is said on stderr."""
    snapshot = one_sample()
    if snapshot.gpu_count is None and not arguments.json:
        raise CollectError(snapshot.error_kind or "failed", "\n".join(snapshot.errors))
    if arguments.json:
        print(encode(snapshot).decode())
    else:
        width = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
        print(render(snapshot, width=width, now=time.time()))
    return 0 if snapshot.gpu_count is not None else 1
