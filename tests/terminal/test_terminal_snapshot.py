"""The screens of `gpumon snapshot`, written out; then what must hold at any width."""

from __future__ import annotations

import msgspec
import pytest

from gpumon.model import Gpu, HostInfo, HostSnapshot, MigInstance, Process
from gpumon.simulate import SimulatedHost
from gpumon.terminal.snapshot import render
from gpumon.units import display_width

NOW = 1_763_000_000.0
TAKEN = NOW - 3
WIDTHS = (40, 60, 80, 100, 200)


def process(pid: int, **fields: object) -> Process:
    given: dict[str, object] = {
        "pid": pid,
        "kinds": ["compute"],
        "user": "alice",
        "program": "python train.py",
        "gpu_memory_used_mib": 20480,
        "sm_utilization_percent": 80.0,
        "started_at": TAKEN - 7500,
        "runtime_seconds": 7500.0,
        "cpu_percent": 104.2,
    }
    return msgspec.convert(given | fields, Process)


def h100(index: int, **fields: object) -> Gpu:
    given: dict[str, object] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "utilization_percent": 0,
        "memory_total_mib": 81559,
        "memory_used_mib": 4,
        "memory_reserved_mib": 551,
        "temperature_celsius": 31,
        "power_draw_watts": 70.4,
        "enforced_power_limit_watts": 700.0,
        "processes": [],
    }
    return msgspec.convert(given | fields, Gpu)


def host(*gpus: Gpu, **fields: object) -> HostSnapshot:
    given: dict[str, object] = {
        "hostname": "node-7",
        "time": TAKEN,
        "driver_version": "570.124.06",
        "cuda_version": "12.8",
        "gpu_count": len(gpus),
        "host": HostInfo(
            cpu_percent=12.4,
            cpu_count=192,
            load_1m=20.19,
            memory_total_mib=2063360,
            memory_available_mib=1945600,
        ),
    }
    snapshot = msgspec.convert(given | fields, HostSnapshot)
    snapshot.gpus = list(gpus)
    return snapshot


MIXED = host(
    h100(
        0,
        utilization_percent=97,
        memory_used_mib=40964,
        temperature_celsius=63,
        power_draw_watts=612.0,
        processes=[
            process(4311, gpu_memory_used_mib=None, user=None, program=None, note="ended"),
            process(1030252, kinds=["compute", "graphics"], program="python pretrain.py"),
        ],
    ),
    h100(1, free_since=TAKEN - 5 * 86400, watched_since=TAKEN - 5 * 86400),
    h100(
        2,
        memory_used_mib=71900,
        unused_since=TAKEN - 30_000,
        held_since=TAKEN - 7500,
        watched_since=TAKEN - 5 * 86400,
        processes=[
            process(
                77,
                user="bartholomew",
                program="jupyter",
                sm_utilization_percent=0.0,
                cpu_percent=None,
            )
        ],
    ),
    Gpu(
        index=3,
        name="NVIDIA H100 80GB HBM3",
        lost=True,
        error="fallen off the bus: drain the host, then power-cycle it",
        unknown={"utilization_percent": "the GPU is lost"},
    ),
    h100(4, memory_used_mib=62000),
    h100(
        5,
        utilization_percent=None,
        memory_used_mib=8200,
        unknown={"utilization_percent": "not available under MIG"},
        mig_mode=True,
        mig=[
            MigInstance(
                index=0,
                uuid="MIG-0",
                name="1g.10gb",
                memory_total_mib=9728,
                memory_used_mib=8200,
                memory_reserved_mib=0,
                processes=[process(991, user="mei", sm_utilization_percent=None)],
            ),
            MigInstance(
                index=1,
                uuid="MIG-1",
                name="2g.20gb",
                memory_total_mib=19968,
                memory_used_mib=0,
                memory_reserved_mib=0,
                processes=[],
            ),
        ],
    ),
)

SCREEN_100 = """\
node-7  read 3s ago  driver 570.124.06  CUDA 12.8  CPU 12% of 192 cores  RAM 115.0G/2.0T  load 20.19

GPU  NAME         TEMP  USE     POWER       MEMORY  STATE
         PID  USER         KIND  MEMORY   SM   CPU  TIME  PROGRAM
  0  H100 80G      63C  97%  612/700W  40.0G/79.6G  busy <=2h05
     1030252  alice        C+G    20.0G  80%  104%  2h05  python pretrain.py
        4311  -            C          -  80%  104%  2h05  - (ended)
  1  H100 80G      31C   0%   70/700W     4M/79.6G  free >=5d
  2  H100 80G      31C   0%   70/700W  70.2G/79.6G  idle 2h05
          77  bartholomew  C      20.0G   0%     -  2h05  jupyter
  3  H100 80G        -    -         -            -  fault
     ! fallen off the bus: drain the host, then power-cycle it
  4  H100 80G      31C   0%   70/700W  60.5G/79.6G  busy
     60.5G held, but no process is visible: look for a container or a process that does not end
  5  H100 80G      31C    -   70/700W   8.0G/79.6G  busy <=2h05
     use: not available under MIG
5.0  MIG 1g.10gb                         8.0G/9.5G  busy <=2h05
         991  mei          C      20.0G    -  104%  2h05  python train.py
5.1  MIG 2g.20gb                          0M/19.5G  free"""

SCREEN_80 = """\
node-7  read 3s ago  driver 570.124.06  CUDA 12.8  CPU 12% of 192 cores
  RAM 115.0G/2.0T  load 20.19

GPU  NAME         TEMP  USE     POWER       MEMORY  STATE
         PID  USER         KIND  MEMORY   SM   CPU  TIME  PROGRAM
  0  H100 80G      63C  97%  612/700W  40.0G/79.6G  busy <=2h05
     1030252  alice        C+G    20.0G  80%  104%  2h05  python pretrain.py
        4311  -            C          -  80%  104%  2h05  - (ended)
  1  H100 80G      31C   0%   70/700W     4M/79.6G  free >=5d
  2  H100 80G      31C   0%   70/700W  70.2G/79.6G  idle 2h05
          77  bartholomew  C      20.0G   0%     -  2h05  jupyter
  3  H100 80G        -    -         -            -  fault
     ! fallen off the bus: drain the host, then power-cycle it
  4  H100 80G      31C   0%   70/700W  60.5G/79.6G  busy
     60.5G held, but no process is visible: look for a container or a process
       that does not end
  5  H100 80G      31C    -   70/700W   8.0G/79.6G  busy <=2h05
     use: not available under MIG
5.0  MIG 1g.10gb                         8.0G/9.5G  busy <=2h05
         991  mei          C      20.0G    -  104%  2h05  python train.py
5.1  MIG 2g.20gb                          0M/19.5G  free"""

SCREEN_40 = """\
node-7  read 3s ago  driver 570.124.06
  CUDA 12.8  CPU 12% of 192 cores
  RAM 115.0G/2.0T  load 20.19

GPU  USE       MEMORY  STATE
      PID  USER    MEMORY  TIME  PROGRAM
  0  97%  40.0G/79.6G  busy <=2h05
  1030252  alice    20.0G  2h05  python~
     4311  -            -  2h05  - (end~
  1   0%     4M/79.6G  free >=5d
  2   0%  70.2G/79.6G  idle 2h05
       77  barth~   20.0G  2h05  jupyter
  3    -            -  fault
  ! fallen off the bus: drain the host,
    then power-cycle it
  4   0%  60.5G/79.6G  busy
  60.5G held, but no process is visible:
    look for a container or a process
    that does not end
  5    -   8.0G/79.6G  busy <=2h05
  use: not available under MIG
5.0         8.0G/9.5G  busy <=2h05
      991  mei      20.0G  2h05  python~
5.1          0M/19.5G  free"""


@pytest.mark.parametrize(("width", "screen"), [(100, SCREEN_100), (80, SCREEN_80), (40, SCREEN_40)])
def test_the_screen_is_as_written(width: int, screen: str) -> None:
    assert render(MIXED, width=width, now=NOW) == screen


def body(snapshot: HostSnapshot, width: int = 100) -> list[str]:
    return render(snapshot, width=width, now=NOW).splitlines()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("number", range(60))
def test_no_line_is_wider_than_asked_for(width: int, number: int) -> None:
    snapshot = SimulatedHost("a-host-with-quite-a-long-name.example.org", number).snapshot(NOW)
    lines = body(snapshot, width)
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    assert all(line.isascii() for line in lines)


@pytest.mark.parametrize("width", [*WIDTHS, 20, 7, 1, 0])
def test_wide_and_hostile_text_stays_within_the_width(width: int) -> None:
    nasty = "\x1b[31m\u202e漢字漢字漢字漢字 e\u0301e\u0301 " * 30
    gpu = h100(
        0,
        name=nasty,
        error=nasty,
        unknown={"processes": nasty},
        unattributed_mib=2**70,
        processes=[
            process(
                2**40,
                user=nasty,
                user_by=nasty,
                program=nasty,
                container=nasty,
                started_from=nasty,
                cpu_percent=1e300,
            )
        ],
        temperature_celsius=10**18,
    )
    snapshot = host(gpu, hostname=nasty, errors=[nasty], sampler_error=nasty, driver_version=nasty)
    text = render(snapshot, width=width, now=NOW)
    assert max(map(display_width, text.splitlines())) <= max(width, 1)
    assert text.replace("\n", "").isprintable()


def test_a_broken_number_does_not_push_the_others_off_the_line() -> None:
    gpu = h100(0, temperature_celsius=10**18, power_draw_watts=1e300)
    assert body(host(gpu), 80)[-1].endswith("0%  1000000~/700W  4M/79.6G  free")


def test_an_invented_host_says_so_first() -> None:
    assert body(host(simulated=True))[0] == "SIMULATED: this host and its numbers are invented"
    assert "SIMULATED" not in render(host(), width=100, now=NOW)


def test_unknown_is_a_dash_and_zero_is_zero() -> None:
    unknown = body(host(Gpu(index=0), host=HostInfo(), driver_version=None, gpu_count=1))
    assert (
        unknown[0] == "node-7  read 3s ago  driver -  CUDA 12.8  CPU - of - cores  RAM -/-  load -"
    )
    assert unknown[-2].split() == ["0", "-", "-", "-", "-", "-", "unknown"]
    zero = body(host(h100(0, power_draw_watts=0.0, temperature_celsius=0, memory_used_mib=0)))
    assert zero[-1].split() == ["0", "H100", "80G", "0C", "0%", "0/700W", "0M/79.6G", "free"]


def test_one_known_half_is_shown_beside_the_unknown_one() -> None:
    line = body(host(h100(0, power_draw_watts=None, memory_used_mib=None)))[3]
    assert "-/700W" in line
    assert "-/79.6G" in line


def test_a_gpu_whose_processes_cannot_be_read_is_not_free() -> None:
    gpu = h100(0, processes=None, unknown={"processes": "no permission"})
    lines = body(host(gpu))
    assert lines[3].endswith("unknown")
    assert "     its processes could not be read" in lines
    assert "     processes: no permission" in lines


def test_a_list_that_cannot_be_read_is_not_an_empty_one() -> None:
    gpu = h100(0, memory_used_mib=62000, processes=None, unknown={"processes": "no permission"})
    lines = body(host(gpu))
    assert lines[3].endswith("busy")
    assert lines[4:] == ["     processes: no permission"]


def test_a_broken_gpu_tells_its_error_and_the_others_stay() -> None:
    broken = Gpu(index=1, error="the driver does not answer for this GPU: Unknown Error")
    lines = body(host(h100(0), broken, h100(2)))
    assert [line.split()[-1] for line in lines if line[:3].strip().isdigit()] == [
        "free",
        "unknown",
        "free",
    ]
    assert "     ! the driver does not answer for this GPU: Unknown Error" in lines


def test_unified_memory_is_named_and_not_shown_as_unknown() -> None:
    gpu = h100(
        0,
        name="NVIDIA GB10",
        unified_memory=True,
        memory_total_mib=None,
        memory_used_mib=None,
        unknown={"memory_used_mib": "not supported"},
    )
    lines = body(host(gpu))
    assert "unified" in lines[3]
    assert lines[3].endswith("free")
    assert "not supported" not in "\n".join(lines)


def test_a_pending_change_of_mig_mode_is_told() -> None:
    assert "     MIG will be on after the next reset" in body(host(h100(0, mig_mode_pending=True)))
    assert "     MIG will be off after the next reset" in body(
        host(h100(0, mig_mode_pending=False))
    )


def test_a_mig_instance_that_cannot_be_read_says_why() -> None:
    instance = MigInstance(index=0, uuid="MIG-0", error="the instance was destroyed")
    lines = body(host(h100(0, mig_mode=True, mig=[instance])))
    assert lines[-2].split() == ["0.0", "MIG", "-", "-", "unknown"]
    assert lines[-1] == "     ! the instance was destroyed"


def test_a_zombie_is_called_one() -> None:
    lines = body(host(h100(0, memory_used_mib=20480, processes=[process(5, state="zombie")])))
    assert lines[-1].endswith("python train.py (zombie)")


def test_the_command_line_is_never_shown() -> None:
    secret = process(5, command="python train.py --token hunter2")
    assert "hunter2" not in render(host(h100(0, processes=[secret])), width=200, now=NOW)


def test_a_host_without_a_driver_says_what_to_do() -> None:
    lines = body(host(gpu_count=None, driver_version=None, errors=["Install the driver."]))
    assert lines[1:] == ["Install the driver."]
    lines = body(host(gpu_count=None, driver_version=None))
    assert "is not known" in lines[1]
    assert "nvidia-smi" in " ".join(lines)


def test_a_host_without_gpus_is_not_the_same_as_one_without_a_driver() -> None:
    text = " ".join(body(host()))
    assert "counts no GPU on this host" in text
    assert "not known" not in text


def test_a_gpu_that_is_not_listed_is_noticed() -> None:
    assert "The driver counts 8 GPUs; this list has 1." in body(host(h100(0), gpu_count=8))


def test_before_the_first_reading_nothing_is_claimed() -> None:
    snapshot = HostSnapshot(hostname="node-7", sampler_error="the sampler is starting")
    lines = body(snapshot)
    assert lines[0].startswith("node-7  no reading  ")
    assert lines[1:] == ["There is no reading yet.", "No newer reading: the sampler is starting"]


def test_an_old_reading_frees_no_gpu() -> None:
    lines = body(host(h100(0), sample_age_seconds=900.0, sampler_error="GPU 3 hangs"))
    assert lines[0].startswith("node-7  read 15m ago")
    assert "No newer reading: GPU 3 hangs" in lines
    assert any(line.startswith("This reading is old.") for line in lines)
    assert "H100 80G" in lines[-1]
    assert lines[-1].endswith("unknown")


def test_the_age_that_the_snapshot_tells_goes_before_the_clocks() -> None:
    assert body(host(sample_age_seconds=0.5))[0].startswith("node-7  read 0s ago")
    assert body(host(time=NOW - 61))[0].startswith("node-7  read 1m ago")
    assert body(host(time=NOW + 5))[0].startswith("node-7  read 0s ago")


def test_an_owner_by_rule_is_marked_and_the_mark_explained() -> None:
    ruled = [process(pid, user="bob", user_by="rule: home mount") for pid in (5, 6)]
    plain = process(7, gpu_memory_used_mib=1)
    lines = body(host(h100(0, processes=[*ruled, plain])))
    assert [line.split()[1] for line in lines[-4:-1]] == ["bob*", "bob*", "alice"]
    assert lines[-1] == "* owner by rule: home mount"
    assert "*" not in render(host(h100(0, processes=[plain])), width=100, now=NOW)


def test_an_unknown_owner_is_never_an_owner_by_rule() -> None:
    nobody = process(5, user=None, user_by="rule: home mount")
    assert "*" not in render(host(h100(0, processes=[nobody])), width=100, now=NOW)


def test_where_a_process_was_started_stands_behind_its_program() -> None:
    lines = body(host(h100(0, processes=[process(5, job="slurm 7", started_from="tmux")])))
    assert lines[-1].endswith("python train.py (slurm 7, tmux)")


def test_memory_that_no_process_explains_has_a_line_of_its_own() -> None:
    lines = body(host(h100(0, unattributed_mib=12595, processes=[process(5)])))
    assert lines[-2] == "     unattributed 12.3G"
    for known in (0, None):
        gpu = h100(0, unattributed_mib=known, processes=[process(5)])
        assert "unattributed" not in render(host(gpu), width=100, now=NOW)
