"""On the GPU host: from NVML and /proc to one HostSnapshot."""
