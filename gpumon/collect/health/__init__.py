"""Health of the GPUs: what broke, since when, how often, and whether it is over."""
