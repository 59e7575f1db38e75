"""An interpreter that has gpumon as an ordinary installation on a GPU host has it.

A development environment makes Python slow to start: an editable installation imports a tenth of
the standard library before anything else, and some libraries import others only because those are
there. So what is measured runs in an environment that has this checkout's package, the libraries
that it needs without extras, and nothing else. All of them are links, so nothing is downloaded.
"""

from __future__ import annotations

import subprocess
import venv
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from agent_cost import ROOT

DISTRIBUTION = "gpumon-cluster"
_SCRIPT = "#!{python}\nimport sys\nfrom gpumon.cli import main\nsys.exit(main())\n"


@dataclass(frozen=True)
class Installed:
    """Where it is."""

    python: str
    gpumon: str
    """The command, as pip writes it."""


def install(folder: Path) -> Installed:
    """Make the environment in a new folder."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = subprocess.run(
        [str(python), "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    Path(packages, "gpumon").symlink_to(ROOT / "gpumon")
    for library in _needed(distribution(DISTRIBUTION)).values():
        for name in {file.parts[0] for file in library.files or []} - {"..", "__pycache__"}:
            Path(packages, name).symlink_to(Path(str(library.locate_file(name))))
    # Single modules have their bytecode beside them, which is here: without it the first process
    # that imports one would pay for compiling it, most of all in memory.
    subprocess.run([str(python), "-I", "-m", "compileall", "-q", "-l", packages], check=True)
    script = folder / "bin" / "gpumon"
    script.write_text(_SCRIPT.format(python=python))
    script.chmod(0o755)
    return Installed(str(python), str(script))


def _needed(of: Distribution) -> dict[str, Distribution]:
    """Return the libraries, by name, that a distribution needs without extras, and theirs."""
    found: dict[str, Distribution] = {}
    pending = list(of.requires or [])
    while pending:
        requirement = Requirement(pending.pop())
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and requirement.name not in found:
            found[requirement.name] = distribution(requirement.name)
            pending += found[requirement.name].requires or []
    return found
