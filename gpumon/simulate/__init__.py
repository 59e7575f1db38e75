"""An invented cluster, for the demo and for load: believable readings without a GPU.

    hosts.py     SimulatedHost: puts the parts together into a HostSnapshot
    kinds.py     what a host of which number is: its GPUs, who works there, what is broken
    lanes.py     which job is on which GPUs when, and since when they are free
    jobs.py      one job: who, which program, how it uses GPU and memory over time
    hardware.py  GPU models, and what power, clocks and temperature go with a use

Everything is a function of (number, seed, now): nothing is stored, so that any moment can be asked
for, in any order, in any process. All names of hosts, people and programs are invented.
"""

from gpumon.simulate.hosts import SimulatedHost, host_names

__all__ = ["SimulatedHost", "host_names"]
