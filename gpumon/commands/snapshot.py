"""`gpumon snapshot`: this host's GPUs once, without any daemon."""

from __future__ import annotations

import argparse
import importlib

from gpumon.commands.one_sample import one_sample
from gpumon.errors import CollectError

PIPE_WIDTH = 120


def run(arguments: argparse.Namespace) -> int:
    """Print the snapshot; 1 when the driver could not be asked, which is said on stderr."""
    face = "gpumon.model" if arguments.json else "gpumon.terminal.snapshot"
    # What shows the sample is imported while the sampler starts: half of the time that all takes.
    snapshot = one_sample(lambda: importlib.import_module(face))
    if snapshot.gpu_count is None and not arguments.json:
        raise CollectError(snapshot.error_kind or "failed", "\n".join(snapshot.errors))
    if arguments.json:
        from gpumon.model import encode

        print(encode(snapshot).decode())
    else:
        import shutil
        import time

        from gpumon.terminal.snapshot import render

        width = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
        print(render(snapshot, width=width, now=time.time()))
    return 0 if snapshot.gpu_count is not None else 1
