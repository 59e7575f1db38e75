"""Where a host's readings come from: one file a source, one contract (base.py)."""
