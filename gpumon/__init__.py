"""gpumon: which GPU is free, who holds what since when, what is wasted or broken."""

from gpumon.version import __version__

__all__ = ["__version__"]
