"""Two packages bring a module `pynvml`; only NVIDIA's is of use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_module_of_somebody_else_under_the_name_of_nvidias_is_named_with_the_cure(
    tmp_path: Path,
) -> None:
    (tmp_path / "pynvml.py").write_text("def nvmlInit(): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "snapshot"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    words = (
        "the module pynvml is not NVIDIA's, or too old: pip install --force-reinstall nvidia-ml-py"
    )
    assert f"{words} (it is {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr
