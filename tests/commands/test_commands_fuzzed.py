"""The page's server, fuzzed by what its own description of its answers allows and forbids."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands.running import Command

pytestmark = pytest.mark.system


def test_a_fuzzer_that_reads_the_openapi_document_finds_nothing(
    gpumon: Command, free_port: Callable[[], int], tmp_path: Path
) -> None:
    port = free_port()
    demo = gpumon.start("demo", "--web-port", str(port))
    assert demo.stderr is not None
    while f":{port}/" not in demo.stderr.readline():
        assert demo.poll() is None
    fuzzer = Path(sys.executable).with_name("schemathesis")
    limits = ("--max-examples", "40", "--phases", "coverage,fuzzing", "--no-color")
    done = subprocess.run(
        [str(fuzzer), "run", f"http://127.0.0.1:{port}/openapi.json", *limits],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "7 selected / 7 total" in done.stdout
