"""`gpumon doctor`: what is well on this machine, what is not, and what to do. docs/doctor.md.

finding.py      one line of the answer
runner.py       runs the checks side by side, each within its time and on its own
gpu_host.py     driver, device files, hidden processes
files.py        configuration, tokens, certificates, state
certificate.py  a certificate as the other side will judge it
clock.py        whether something keeps the clock right
daemons.py      what answers on the ports of agent and page
cluster.py      every host of the configuration, asked once: answers, clocks, versions
answers.py      what is wrong with a host that answers, and which hosts nobody asks
proxy.py        the page as readers get it
checks.py       which of these are for which machine
command.py      arguments, output, exit code
"""

from gpumon.commands.doctor.command import run

__all__ = ["run"]
