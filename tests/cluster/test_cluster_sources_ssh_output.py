"""What hosts print over SSH, as text: every odd form of nvidia-smi and ps, without a network."""

from __future__ import annotations

import pytest

from gpumon.cluster.sources.ssh.columns import COLUMNS, Query
from gpumon.cluster.sources.ssh.failures import way_failed
from gpumon.cluster.sources.ssh.processes import listed
from gpumon.cluster.sources.ssh.script import CutShort, Part, new_mark, script, taken_apart
from gpumon.cluster.sources.ssh.snapshot import refused_columns, snapshot
from gpumon.cluster.sources.ssh.table import number
from gpumon.config import Limits
from gpumon.model import HostSnapshot
from gpumon.states import fault_of, is_free, is_held
from gpumon.summary import summarize

NOW = 1_764_000_000
UUID = "GPU-4ce41b08-fb84-c037-3356-8d1e7f073d29"
HEADER = (
    "index, uuid, pci.bus_id, name, count, driver_version, utilization.gpu [%], "
    "utilization.memory [%], memory.total [MiB], memory.used [MiB], memory.free [MiB], "
    "memory.reserved [MiB], temperature.gpu, power.draw [W], enforced.power.limit [W], "
    "clocks.current.sm [MHz], clocks.current.memory [MHz], fan.speed [%], pstate, "
    "clocks_event_reasons.active, ecc.mode.current, ecc.errors.corrected.volatile.total, "
    "ecc.errors.uncorrected.volatile.total, ecc.errors.corrected.aggregate.total, "
    "ecc.errors.uncorrected.aggregate.total, compute_mode, persistence_mode, "
    "retired_pages.pending, pcie.link.gen.current, pcie.link.width.current, mig.mode.current"
)
H100 = (
    f"0, {UUID}, 00000000:00:06.0, NVIDIA H100 80GB HBM3, 1, 580.159.04, 0, 0, 81559, 1551, "
    "79529, 480, 46, 130.24, 700.00, 1980, 2619, [N/A], P0, 0x0000000000000000, Enabled, 0, 0, "
    "0, 0, Default, Enabled, [N/A], 5, 16, Disabled"
)
"""Printed by nvidia-smi of driver 580 on an H100, as is the line of its process."""
PROCESS_HEADER = "gpu_uuid, pid, used_gpu_memory [MiB], process_name"
H100_PROCESS = f"{UUID}, 432, 1542, python3"
PS = "  432     0       4 Sl   root                                                      python3"
SHORT = "index, uuid, name, memory.total [MiB], memory.used [MiB], utilization.gpu [%]"


def read(
    gpus: str,
    processes: str = PROCESS_HEADER,
    ps: str | None = None,
    *,
    code: int = 0,
    list_code: int = 0,
    namespace: str = "pid:[4026531836]",
    seen_at: int = NOW,
    ps_code: int = 0,
    instances: str | None = None,
) -> HostSnapshot:
    """The snapshot of a host that prints this."""
    facts = f"hostname gpu-03\ntime {NOW}\nnamespace {namespace}\nload 1.50 2.25 3.00 2/345 678\n"
    facts += "uptime 86400.25 1.0\nMemTotal:       65536000 kB\nMemAvailable:   32768000 kB\n"
    parts = {
        "host": Part(facts, 0),
        "gpus": Part(gpus, code),
        "processes": Part(f"{processes}\n\ncode {list_code}", 0),
    }
    if ps is not None:
        parts["ps"] = Part(f"time {seen_at}\n{ps}", ps_code)
    if instances is not None:
        parts["instances"] = Part(instances, 0)
    return snapshot(parts)


def a_line(memory: str = "81559", used: str = "4", use: str = "0", uuid: str = UUID) -> str:
    return f"{SHORT}\n0, {uuid}, NVIDIA H100 80GB HBM3, {memory}, {used}, {use}"


def test_the_output_of_a_real_h100_is_read():
    found = read(f"{HEADER}\n{H100}", f"{PROCESS_HEADER}\n{H100_PROCESS}", PS)
    assert found.errors == []
    assert (found.hostname, found.time, found.driver_version) == ("gpu-03", NOW, "580.159.04")
    assert (found.host.load_1m, found.host.load_15m) == (1.5, 3.0)
    assert (found.host.memory_total_mib, found.host.memory_available_mib) == (64000, 32000)
    assert found.host.uptime_seconds == 86400.25
    [gpu] = found.gpus
    assert (gpu.uuid, gpu.pci_bus_id) == (UUID, "00000000:00:06.0")
    assert (gpu.memory_total_mib, gpu.memory_used_mib, gpu.memory_reserved_mib) == (
        81559,
        1551,
        480,
    )
    assert (gpu.power_draw_watts, gpu.enforced_power_limit_watts) == (130.24, 700.0)
    assert (gpu.utilization_percent, gpu.performance_state, gpu.clock_event_reasons) == (0, 0, [])
    assert (gpu.ecc_mode, gpu.persistence_mode, gpu.mig_mode) == (True, True, False)
    assert (gpu.fan_speed_percent, gpu.unknown["fan_speed_percent"]) == (None, "not available")
    [process] = gpu.processes
    assert (process.pid, process.user, process.uid, process.program) == (432, "root", 0, "python3")
    assert (process.gpu_memory_used_mib, process.started_at) == (1542, NOW - 4.0)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("[N/A]", "not available"),
        ("N/A", "not available"),
        ("[Not Supported]", "not supported"),
        ("[Insufficient Permissions]", "hidden from this login (insufficient permissions)"),
        ("[Unknown Error]", "unknown error"),
        ("[Not Found]", "not found"),
        ("", "nothing was told"),
    ],
)
def test_words_in_place_of_a_number_are_unknown_with_their_reason(word, reason):
    [gpu] = read(a_line(used=word)).gpus
    assert gpu.memory_used_mib is None
    assert gpu.unknown["memory_used_mib"] == reason
    assert is_held(summarize(HostSnapshot(gpus=[gpu])).gpus[0]) is None


@pytest.mark.parametrize("word", ["[GPU requires reset]", "[GPU is lost]"])
def test_a_gpu_that_is_gone_is_a_fault_with_the_drivers_words(word):
    gone = f"1, GPU-1, NVIDIA H100 80GB HBM3, {word}, {word}, {word}"
    found = read(f"{a_line()}\n{gone}")
    sound, lost = found.gpus
    assert (sound.lost, sound.error) == (False, None)
    assert (lost.lost, lost.error) == (True, word.strip("[]"))
    assert fault_of(summarize(found).gpus[1]) == word.strip("[]")


def test_a_gpu_that_is_not_listed_is_missed_by_the_count():
    words = "Unable to determine the device handle for GPU1: 0000:3B:00.0: Unknown Error"
    found = read(f"{HEADER}\n{H100.replace(', 1, 580', ', 2, 580')}\n{words}", code=15)
    assert (found.gpu_count, len(found.gpus)) == (2, 1)
    assert found.errors[0] == "the driver counts 2 GPUs, nvidia-smi lists 1"
    assert "exit code 15: Unable to determine the device handle for GPU1" in found.errors[1]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("301.42", 301.42),
        ("301,42", 301.42),
        ("85 %", 85.0),
        ("81559 MiB", 81559.0),
        ("-5", -5.0),
        ("1,234,567", None),
        ("1e5", None),
        ("0x10", None),
        ("nan", None),
        ("9" * 30, None),
        ("٣", None),
    ],
)
def test_numbers_are_read_with_point_or_comma_and_with_or_without_unit(text, value):
    assert number(text) == value


def test_a_locale_with_decimal_commas_does_not_shift_the_columns():
    [gpu] = read(f"{HEADER}\n{H100.replace('130.24', '130,24')}").gpus
    assert (gpu.power_draw_watts, gpu.enforced_power_limit_watts) == (130.24, 700.0)


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("memory_used_mib", a_line(used="99999999999999")),
        ("memory_used_mib", a_line(used="90000")),
        ("memory_used_mib", a_line(used="-1")),
        ("memory_total_mib", a_line(memory="0")),
        ("utilization_percent", a_line(use="101")),
    ],
)
def test_values_that_can_not_be_are_unknown(field, line):
    [gpu] = read(line).gpus
    assert getattr(gpu, field) is None
    assert "out of range" in gpu.unknown[field]


def test_unified_memory_is_recognised_by_name_and_answer_together():
    line = a_line(memory="[N/A]", used="[N/A]")
    assert read(line.replace("NVIDIA H100 80GB HBM3", "NVIDIA GB10")).gpus[0].unified_memory
    assert not read(line).gpus[0].unified_memory
    hidden = a_line(memory="[Insufficient Permissions]", used="[Insufficient Permissions]")
    assert not read(hidden.replace("NVIDIA H100 80GB HBM3", "NVIDIA GB10")).gpus[0].unified_memory


# Processes


@pytest.mark.parametrize("text", [PROCESS_HEADER, "No running processes found"])
def test_no_processes_are_an_empty_list(text):
    assert read(a_line(), text).gpus[0].processes == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("[Not Supported]", 0),
        (f"{PROCESS_HEADER}\n[Insufficient Permissions]", 0),
        (f"{PROCESS_HEADER}\n{H100_PROCESS}\nUnknown Error", 0),
        (PROCESS_HEADER, 255),
        (f"{PROCESS_HEADER}\n[N/A], 432, 1542, python3", 0),
    ],
)
def test_a_list_that_is_not_whole_is_unknown_and_the_gpu_not_free(text, code):
    found = read(a_line(), text, list_code=code)
    [gpu] = found.gpus
    assert gpu.processes is None
    assert gpu.unknown["processes"]
    assert is_free(summarize(found).gpus[0], Limits()) is None


def test_a_pid_that_is_not_told_makes_the_list_of_that_gpu_unknown():
    other = "GPU-1"
    gpus = f"{a_line()}\n1, {other}, NVIDIA H100 80GB HBM3, 81559, 4, 0"
    found = read(gpus, f"{PROCESS_HEADER}\n{UUID}, [N/A], [N/A], [N/A]")
    assert [gpu.processes for gpu in found.gpus] == [None, []]


@pytest.mark.parametrize("memory", ["[N/A]", "[Insufficient Permissions]", "0", "-3", "9" * 18])
def test_memory_of_a_process_that_is_not_told_is_unknown_and_the_row_stays(memory):
    found = read(a_line(), f"{PROCESS_HEADER}\n{UUID}, 432, {memory}, x", PS)
    [process] = found.gpus[0].processes
    assert (process.gpu_memory_used_mib, process.user) == (None, "root")


def test_a_process_of_a_gpu_that_is_not_listed_is_told():
    found = read(a_line(), f"{PROCESS_HEADER}\nGPU-elsewhere, 432, 5, x", PS)
    assert "GPU-elsewhere" in found.errors[0]


def test_a_process_listed_twice_is_one_row():
    found = read(a_line(), "\n".join([PROCESS_HEADER, H100_PROCESS, H100_PROCESS]), PS)
    assert [process.gpu_memory_used_mib for process in found.gpus[0].processes] == [1542]


def test_a_list_beyond_reason_is_unknown():
    rows = "\n".join(f"{UUID}, {pid}, 1, x" for pid in range(1, 5000))
    assert read(a_line(), f"{PROCESS_HEADER}\n{rows}", PS).gpus[0].processes is None
    assert listed(f"{PROCESS_HEADER}\n" + "x" * 100).error is not None


def test_more_gpus_than_a_host_can_have_are_not_all_read():
    lines = "\n".join([SHORT] + [f"{n}, GPU-{n}, x, 1, 1, 1" for n in range(20_000)])
    assert len(read(lines).gpus) == 65, "one more than is accepted"


def test_an_output_beyond_its_limit_is_refused_and_costs_no_more_than_its_limit():
    mark = new_mark()
    text = f"{mark} begin 0\n" + "\n" * 2_000_000 + f"{mark} done 0\n"
    with pytest.raises(CutShort, match="begin"):
        taken_apart(text.encode(), mark)
    found = read(a_line() + "\nwords" * 100_000)
    assert len(found.errors[0]) < 200


# Owners


def owners(ps: str, **fields: object) -> tuple[list[object], HostSnapshot]:
    found = read(
        a_line(), f"{PROCESS_HEADER}\n{UUID}, 432, 5, /usr/bin/app --key s3cret", ps, **fields
    )
    return [found.gpus[0].processes[0]], found


def test_pids_of_another_pid_namespace_are_never_looked_up():
    for namespace in ("pid:[4026532999]", ""):
        [process], found = owners(PS, namespace=namespace)
        assert (process.user, process.uid, process.started_at) == (None, None, None)
        assert process.note == "owner not visible from this container"
        assert "pid namespace" in found.errors[0]
        assert process.program == "app"


def test_a_process_that_ps_does_not_show_has_no_owner():
    [process], found = owners("", ps_code=1)
    assert (process.user, process.gpu_memory_used_mib) == (None, 5)
    assert "hidepid" in process.note
    assert found.errors == []


def test_a_ps_that_fails_is_told():
    [process], found = owners("error: unknown user-defined format specifier", ps_code=2)
    assert process.user is None
    assert found.errors == ["ps told no owners: error: unknown user-defined format specifier"]


def test_a_process_that_began_after_the_list_was_made_is_another_one():
    later = "  432  1000   0 R  alice  python3"
    [process], _ = owners(later, seen_at=NOW + 9)
    assert (process.user, process.started_at) == (None, None)
    assert "another process of this number" in process.note
    [process], _ = owners(later, seen_at=NOW + 1)
    assert process.user == "alice"


@pytest.mark.parametrize(
    ("line", "user"),
    [
        ("432 1234 60 Ss 1234 app", "uid:1234"),
        ("432 1234 60 Ss 007 app", "007"),
        ("432 1234 60 Ss LAB\\alice app", "LAB\\alice"),
        ("432 1234 60 Ss alice@lab.org app", "alice@lab.org"),
        (f"432 1234 60 Ss {'x' * 40} app", "x" * 40),
    ],
)
def test_an_owner_is_the_name_that_ps_prints_or_the_number(line, user):
    [process], _ = owners(line)
    assert (process.user, process.uid) == (user, 1234)


def test_a_zombie_keeps_its_row_and_its_state():
    [process], _ = owners("432 1000 60 Zl alice python3 <defunct>")
    assert (process.state, process.user) == ("zombie", "alice")


def test_the_name_of_a_program_is_cleaned_and_never_its_arguments():
    [process], found = owners("432 1000 60 Ss alice a\x1b[31m b")
    assert process.program == "a\ufffd[31m b"
    assert "s3cret" not in str(found)


def test_a_localized_ps_is_read_as_long_as_it_prints_numbers():
    [process], _ = owners("  432  1000  1234567 Ssl+ alice  python3")
    assert process.started_at == NOW - 1234567.0


# MIG

MIG_LIST = f"""GPU 0: NVIDIA A100 (UUID: {UUID})
  MIG 3g.40gb     Device  0: (UUID: MIG-11111111-2222-3333-4444-555555555555)
  MIG 1g.10gb     Device  1: (UUID: MIG-GPU-{UUID[4:]}/11/0)
"""
MIG_GPU = H100.replace("Disabled", "Enabled").replace(", 0, 0, 81559", ", [N/A], [N/A], 81559")


def test_mig_instances_are_rows_whose_readings_are_unknown():
    found = read(f"{HEADER}\n{MIG_GPU}", instances=MIG_LIST)
    [gpu] = found.gpus
    assert gpu.mig_mode is True
    assert [(one.index, one.name) for one in gpu.mig] == [(0, "3g.40gb"), (1, "1g.10gb")]
    assert [one.memory_used_mib for one in gpu.mig] == [None, None]
    assert is_free(summarize(found).gpus[0], Limits()) is None


def test_a_process_on_a_mig_instance_or_on_its_gpu_makes_it_held():
    for uuid in ("MIG-11111111-2222-3333-4444-555555555555", UUID):
        rows = f"{PROCESS_HEADER}\n{uuid}, 432, 1542, python3"
        found = read(f"{HEADER}\n{MIG_GPU}", rows, PS, instances=MIG_LIST)
        assert found.errors == []
        assert is_held(summarize(found).gpus[0]) is True


def test_a_gpu_in_mig_mode_whose_instances_are_not_listed_is_not_called_free():
    found = read(f"{HEADER}\n{MIG_GPU}")
    assert found.gpus[0].unknown["mig"] == "its MIG instances are not listed yet"
    assert is_free(summarize(found).gpus[0], Limits()) is None


def test_whether_mig_is_on_may_be_unknown():
    empty = H100.replace("1551", "4")
    found = read(f"{HEADER}\n{empty.replace('Disabled', '[Unknown Error]')}")
    assert is_free(summarize(found).gpus[0], Limits()) is None
    without = read(f"{HEADER}\n{empty.replace('Disabled', '[N/A]')}")
    assert is_free(summarize(without).gpus[0], Limits()) is True
    assert without.gpus[0].mig_mode is None
    assert without.gpus[0].unknown["mig_mode"] == "not available"


# The script and its output


def test_parts_are_found_by_a_mark_that_no_process_can_foresee():
    mark, forged = new_mark(), new_mark()
    assert mark != forged
    text = f"Welcome\n{mark} begin 0\nname\n{forged} gpus 0\n\n{mark} gpus 9\n\n{mark} done 0\n"
    parts = taken_apart(text.encode(), mark)
    assert parts["gpus"] == Part(f"name\n{forged} gpus 0", 9)


def test_an_output_cut_at_any_byte_before_its_end_is_refused():
    mark = new_mark()
    text = f"{mark} begin 0\nx\n{mark} gpus 0\n{mark} done 0\n".encode()
    for size in range(len(text) - len(" done 0\n")):
        with pytest.raises(CutShort):
            taken_apart(text[:size], mark)


def test_bytes_that_are_no_text_do_no_harm():
    mark = new_mark().encode()
    parts = taken_apart(b"\xff\xfe\n" + mark + b" gpus x\n" + mark + b" done 0\n", mark.decode())
    assert parts["gpus"] == Part("\ufffd\ufffd", -1)


def test_every_field_is_asked_once_and_its_other_name_only_when_refused():
    query = Query()
    names = query.names
    assert len(names) == len(set(names)) == len(COLUMNS)
    assert "clocks_event_reasons.active" in names
    [refused] = refused_columns(
        Part('Field "clocks_event_reasons.active" is not a valid field to query.', 2)
    )
    assert query.refuse(refused)
    assert "clocks_throttle_reasons.active" in query.names
    assert query.refuse("clocks_throttle_reasons.active")
    assert len(query.names) == len(COLUMNS) - 1
    assert not query.refuse("rm -rf /")
    query.forget()
    assert query.names == names


def test_nothing_of_the_host_gets_into_the_script():
    text = script(Query().names, mark="@m", seconds=3, instances=True, guard=True)
    assert "@MARK@" not in text
    assert "@SECONDS@" not in text
    assert text.isascii()


@pytest.mark.parametrize("ended", [ConnectionResetError(104, "reset"), BrokenPipeError(32, "pipe")])
def test_a_host_that_drops_the_connection_is_not_asked_for_an_agent(ended):
    found = way_failed(ended, "gpu@host4:22")
    assert found.kind == "bad answer"
    assert "MaxStartups" in str(found)
    assert "agent" not in str(found)
