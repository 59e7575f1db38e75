"""How to install the libraries that only some machines need."""

from __future__ import annotations


def how_to_install(*extras: str) -> str:
    """Return what to do to have the libraries of the extras ("server", "ssh", "certs")."""
    return f"In the folder of gpumon's source: pip install '.[{','.join(extras)}]'"
