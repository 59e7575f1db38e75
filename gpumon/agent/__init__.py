"""On the GPU host: keeps the sampler alive and answers RPC from bytes that are already there."""
