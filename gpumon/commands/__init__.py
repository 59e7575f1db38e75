"""What each subcommand does, one file each; `gpumon.cli` only parses."""
