from __future__ import annotations

import pytest
from msgspec import structs
from web_cluster import cluster, every_state, gpu, holder, host, simulated

from gpumon.web.text import MOST_HOSTS, WIDTH, plain, render

SCREEN = """\
GPUs  2 free  4 busy  1 idle  1 fault  3 unknown  1 drained   12 GPUs, 4 of 5 hosts
as of 08:02:03, readings up to 4s old, hosts are asked every 5 s

MODEL                 FREE  TOTAL  LARGEST BLOCKS
A100 80G                 0      1
A100 80G MIG 1g.10gb     2      3  gpu-2 x2
H100 80G                 2     10  gpu-1 x2  (3 unknown)
A GPU in MIG mode counts once in the totals. In this table its instances count, each under its
profile.

HOST  MODEL      0   1   2   3   4   5   6   7 FREE USERS                                   SEEN
gpu-1 H100 80G   0 100  __   z  !!  __   #   ?    2 bob 2, alice 1, ? 1                     4s
gpu-2 A100 80G 2/3  --                            0 erin 1                                  4s note
gpu-3 -        no GPU in this host                                                          4s error
gpu-4 H100 80G   ?   ?                            - last: mei 1                             14m down
gpu-5 -        gpu-5: no such name                                                          - never
73 busy, with utilization   #  busy, utilization unknown   __ free   z  held, not used
!! fault   ?  unknown   -- drained   3/7 MIG: free instances of all

USER   GPUS  IDLE  MEMORY  PROCS    SINCE  WHERE
bob       2     1  136.7G      1  <=30h00  gpu-1:1,3
?         1     0   70.3G      -        -  gpu-1:6
alice     1     0   68.4G      1   <=3h00  gpu-1:0
erin      1     0    8.8G      1   <=3h00  gpu-2:0

wasted or broken: fault 1 GPU, down 1 host, error 1 host, never 1 host, unknown 1 GPU, ghost 1 GPU,
idle 1 GPU (at least 2 GPU-hours)
STATE    WHERE    WHO   SINCE  WHAT
fault    gpu-1:4  -      2h00  fallen off the bus: GPU is lost
down     gpu-4    mei     14m  gpu-4:8043 refused the connection
error    gpu-3    -         -  no GPU: the driver counts none
never    gpu-5    -         -  gpu-5: no such name
unknown  gpu-1:7  -         -  its processes could not be read
ghost    gpu-1:6  -      2h00  62464 MiB in use, no process visible
idle     gpu-1:3  bob  >=2h00  70.3G held, not used: 2.0 GPU-hours
note     gpu-2    -         -  its clock is 3m ahead of this server's

12 GPUs on 4 of 5 hosts: 2 free, 4 busy, 1 idle, 1 fault, 3 unknown, 1 drained. 3 hosts fresh, 1
down, 1 not heard of yet. How many GPUs a host has that never answered is not known: none are
counted.
"""


def test_the_text_is_this_screen():
    assert render(every_state()) == SCREEN


def test_a_simulated_cluster_says_so_before_all_else():
    assert render(simulated(2)[0]).splitlines()[0] == (
        "SIMULATED: these hosts and numbers are invented"
    )


@pytest.mark.parametrize("count", [1, 7, 63])
def test_no_line_is_wider_than_the_screen(count):
    lines = render(simulated(count)[0]).splitlines()
    assert max(map(len, lines)) <= WIDTH


def test_long_names_and_many_gpus_stay_within_the_screen():
    users = [holder(f"a-user-with-a-long-name-{n}") for n in range(9)]
    wide = [
        gpu(n, "busy", utilization_percent=100, holders=users, model="X" * 60) for n in range(16)
    ]
    names = [f"a-host-with-a-very-long-name-{n}.cluster.example" for n in range(3)]
    down = {"state": "stale", "reason": "words " * 200, "age_seconds": 170_000.0}
    status = cluster([*(host(name, wide) for name in names), host("h", wide[:1], **down)])
    lines = render(structs.replace(status, title="T" * 300)).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert any("a-host-with-a-very-~" in line for line in lines)


def test_sixteen_gpus_take_two_lines():
    gpus = [gpu(n, "busy", utilization_percent=n) for n in range(16)]
    lines = render(cluster([host("big", gpus)])).splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("big"))
    assert lines[first].split()[3:11] == [str(n) for n in range(8)]
    assert lines[first + 1].split() == [str(n) for n in range(8, 16)]


def test_only_printable_ascii_is_left():
    assert plain("Zoë \x1b[31m名\n前") == "Zo? ?[31m? ?"


def test_too_many_hosts_are_not_listed():
    hosts = [host(f"gpu-{n}", [gpu(0)]) for n in range(MOST_HOSTS + 1)]
    text = render(cluster(hosts))
    assert (
        "201 hosts are too many to list here: filter them (/?q=free), or see /status.json" in text
    )
    assert len(text.splitlines()) < 20
    assert "201 free" in text


def test_users_beyond_the_first_are_counted():
    gpus = [gpu(n, "busy", holders=[holder(f"user{n}")]) for n in range(25)]
    assert "and 5 more users" in render(cluster([host("h", gpus)]))
