"""Who is behind a pid, with real processes."""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import shutil
import subprocess
import sys
import threading
import time

import msgspec
import pytest
from collect_helpers import needs_root, needs_unshare, until

from gpumon.collect import moment, procfs
from gpumon.collect.deadline import Deadline
from gpumon.collect.processes import (
    COMMAND_DENIED,
    COMMAND_STUCK,
    DENIED,
    ENDED,
    HIDDEN,
    MOST_ROWS,
    NOT_OURS,
    NOT_OURS_ERROR,
    OWNER_DENIED,
    ZOMBIE,
    Enricher,
)
from gpumon.model import Gpu, HostSnapshot, MigInstance, Process, decode_snapshot, encode

NOBODY = 65534
TICKS = procfs.TICKS_PER_SECOND


@pytest.fixture
def enricher():
    return Enricher(pids_are_ours=True)


def look(enricher, *pids, now=None, errors=None):
    """Return the rows of these pids on one GPU; the row itself where it is one."""
    rows = [Process(pid=pid, gpu_memory_used_mib=100) for pid in pids]
    enricher.enrich(
        [Gpu(index=0, processes=rows)], now or moment.now(), [] if errors is None else errors
    )
    return rows[0] if len(rows) == 1 else rows


def later(seconds, wall_step=0.0):
    now = moment.now()
    return msgspec.structs.replace(
        now,
        wall=now.wall + seconds + wall_step,
        monotonic=now.monotonic + seconds,
        boot=now.boot + seconds,
    )


def ended_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def running(process):
    """Wait until the child has become the program that it was to run, and return its pid."""
    name = os.path.basename(process.args[0])
    name = name.encode() if isinstance(name, str) else name
    folder = f"/proc/{process.pid}"
    until(
        lambda: procfs.read_stat(folder).comm == name[:15] and procfs.read_arguments(folder),
        f"{process.args[0]!r} runs",
    )
    return process.pid


# ---- A process as it should be. ----


def test_a_process_is_described(enricher, spawn):
    pid = running(spawn(["sleep", "600"]))
    until(lambda: procfs.read_stat(f"/proc/{pid}").state == "sleeping", "it sleeps")
    row = look(enricher, pid)
    assert (row.user, row.uid) == (pwd.getpwuid(os.getuid()).pw_name, os.getuid())
    assert (row.program, row.command, row.state) == ("sleep", "sleep 600", "sleeping")
    assert abs(row.started_at - time.time()) < 5
    assert 0 <= row.runtime_seconds < 5
    assert row.memory_used_mib is not None
    assert row.note is None


def test_a_process_on_several_gpus_is_the_same_everywhere(enricher, sleeper):
    instance = MigInstance(index=0, processes=[Process(pid=sleeper, gpu_memory_used_mib=3)])
    gpus = [
        Gpu(index=0, processes=[Process(pid=sleeper, gpu_memory_used_mib=1)]),
        Gpu(index=1, processes=[Process(pid=sleeper, gpu_memory_used_mib=2)]),
        Gpu(index=2, mig=[instance], processes=[]),
    ]
    enricher.enrich(gpus, moment.now(), [])
    rows = [gpus[0].processes[0], gpus[1].processes[0], instance.processes[0]]
    assert [row.gpu_memory_used_mib for row in rows] == [1, 2, 3]
    assert len({(row.user, row.started_at, row.runtime_seconds) for row in rows}) == 1
    assert rows[2].user is not None


def test_cpu_use_is_unknown_at_first_sight_and_measured_then(enricher, spawn):
    process = spawn(["sh", "-c", "while :; do :; done"])
    assert look(enricher, process.pid).cpu_percent is None
    until(lambda: procfs.read_stat(f"/proc/{process.pid}").cpu_ticks >= 20, "it used CPU")
    first = look(enricher, process.pid).cpu_percent
    assert 1 < first < 250
    before = procfs.read_stat(f"/proc/{process.pid}").cpu_ticks
    hour = look(enricher, process.pid, now=later(3600))
    assert 0 <= hour.cpu_percent < 100 * (before / TICKS + 60) / 3600


# ---- Processes that end or can't be seen. ----


def test_a_process_may_end_at_any_read(sleeper, monkeypatch):
    """Whichever read of its first look is the first in vain, and all after that."""
    read, reads = procfs._read, []

    def looked_at(last_good):
        reads.clear()

        def vanishing(path, most):
            reads.append(path)
            if len(reads) > last_good:
                raise ProcessLookupError(3, "No such process")
            return read(path, most)

        monkeypatch.setattr(procfs, "_read", vanishing)
        return look(Enricher(pids_are_ours=True), sleeper)

    assert looked_at(1000).note is None
    alive = len(reads)
    assert alive >= 6, "its state, arguments, uid, cgroups, an ancestor, and its state again"
    for last_good in range(alive):
        row = looked_at(last_good)
        assert (row.pid, row.gpu_memory_used_mib, row.note) == (sleeper, 100, ENDED)
        assert len(reads) > last_good


def test_a_process_that_ended_keeps_its_row_with_what_was_known(enricher, spawn):
    process = spawn(["sleep", "600"])
    before = look(enricher, running(process))
    process.kill()
    process.wait()
    row = look(enricher, process.pid)
    assert (row.note, row.gpu_memory_used_mib, row.state) == (ENDED, 100, None)
    assert (row.user, row.program, row.started_at) == (
        before.user,
        "sleep",
        before.started_at,
    )
    assert (row.runtime_seconds, row.cpu_percent) == (None, None)


def test_a_process_that_was_never_seen_alive_has_no_owner(enricher):
    row = look(enricher, ended_pid())
    assert (row.user, row.uid, row.command, row.note) == (None, None, None, ENDED)


def test_a_process_that_lives_but_is_not_in_proc_is_hidden_and_not_ended(tmp_path, sleeper):
    row = look(Enricher(pids_are_ours=True, proc=str(tmp_path)), sleeper)
    assert (row.user, row.note) == (None, HIDDEN)


@pytest.mark.parametrize(
    ("denied", "note", "known"),
    [
        (("stat", "status", "cmdline"), DENIED, (False, False)),
        (("status",), OWNER_DENIED, (False, True)),
        (("cmdline",), COMMAND_DENIED, (True, False)),
        (("status", "cmdline"), OWNER_DENIED, (False, False)),
    ],
)
def test_what_the_host_denies_is_unknown_and_the_rest_is_not(
    enricher, sleeper, monkeypatch, denied, note, known
):
    read = procfs._read

    def denying(path, most):
        if path.endswith(tuple("/" + name for name in denied)):
            raise PermissionError(13, "Permission denied")
        return read(path, most)

    monkeypatch.setattr(procfs, "_read", denying)
    row = look(enricher, sleeper)
    assert row.note == note
    assert (row.user is not None, row.command is not None) == known
    assert row.gpu_memory_used_mib == 100


def test_what_was_known_is_not_said_of_a_process_that_can_no_longer_be_seen(
    enricher, sleeper, monkeypatch
):
    # It may be another one under the same pid.
    assert look(enricher, sleeper).user is not None

    def denying(path, most):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(procfs, "_read", denying)
    row = look(enricher, sleeper)
    assert (row.user, row.program, row.started_at, row.note) == (None, None, None, DENIED)


def test_a_zombie_keeps_owner_and_name(enricher):
    process = subprocess.Popen(["true"])
    try:
        until(lambda: procfs.read_stat(f"/proc/{process.pid}").state == "zombie", "it is a zombie")
        row = look(enricher, process.pid)
        assert (row.state, row.note) == ("zombie", ZOMBIE)
        assert (row.uid, row.program, row.command) == (os.getuid(), "true", None)
        assert row.gpu_memory_used_mib == 100
    finally:
        process.wait()


def test_a_process_that_becomes_a_zombie_keeps_its_command(enricher, spawn):
    process = spawn(["sleep", "600"])
    look(enricher, running(process))
    process.kill()
    until(lambda: procfs.read_stat(f"/proc/{process.pid}").state == "zombie", "it is a zombie")
    row = look(enricher, process.pid, now=later(61))
    assert (row.state, row.command) == ("zombie", "sleep 600")


def test_outside_the_hosts_pid_namespace_nothing_is_looked_up(sleeper):
    errors = []
    row = look(Enricher(pids_are_ours=False), sleeper, errors=errors)
    assert (row.user, row.program, row.started_at, row.note) == (None, None, None, NOT_OURS)
    assert errors == [NOT_OURS_ERROR]


# ---- Identity and time. ----


def write_process(proc, pid, *, start, uid, argv, comm="prog"):
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    tail = " ".join(["0"] * 30)
    (folder / "stat").write_text(
        f"{pid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 {start} 9999 25600 {tail}\n"
    )
    (folder / "status").write_text(f"Name:\t{comm}\nUid:\t{uid}\t0\t0\t0\n")
    (folder / "cmdline").write_bytes(argv)


def test_a_pid_that_went_to_another_process_brings_nothing_of_the_old_one(tmp_path):
    enricher = Enricher(pids_are_ours=True, proc=str(tmp_path))
    write_process(tmp_path, 500, start=1000, uid=54321, argv=b"old\0--secret\0")
    old = look(enricher, 500)
    write_process(tmp_path, 500, start=2000, uid=54322, argv=b"new\0")
    new = look(enricher, 500)
    assert (old.user, old.program, old.command) == ("uid:54321", "old", "old --secret")
    assert (new.user, new.program, new.command) == ("uid:54322", "new", "new")
    assert new.cpu_percent is None
    assert new.started_at - old.started_at == pytest.approx(1000 / TICKS, abs=0.5)


def test_a_pid_that_changes_hands_during_the_read_brings_nothing(tmp_path, monkeypatch):
    enricher = Enricher(pids_are_ours=True, proc=str(tmp_path))
    write_process(tmp_path, 500, start=1000, uid=54321, argv=b"old\0")
    read_uid = procfs.read_uid

    def too_late(folder):
        write_process(tmp_path, 500, start=2000, uid=54322, argv=b"new\0")
        return read_uid(folder)

    monkeypatch.setattr(procfs, "read_uid", too_late)
    row = look(enricher, 500)
    assert (row.user, row.program, row.note) == (None, None, ENDED)
    assert look(enricher, 500).user == "uid:54322"


def test_a_dead_pid_that_the_driver_goes_on_listing_is_never_given_to_another_process(tmp_path):
    enricher = Enricher(pids_are_ours=True, proc=str(tmp_path))
    pid = ended_pid()
    write_process(tmp_path, pid, start=1000, uid=54321, argv=b"old\0")
    assert look(enricher, pid).user == "uid:54321"
    shutil.rmtree(tmp_path / str(pid))
    assert look(enricher, pid).note == ENDED
    write_process(tmp_path, pid, start=2000, uid=54322, argv=b"new\0")
    row = look(enricher, pid)
    assert (row.user, row.program, row.note) == ("uid:54321", "old", ENDED)


def test_a_process_that_began_after_the_driver_was_asked_is_not_the_one_it_named(tmp_path):
    enricher = Enricher(pids_are_ours=True, proc=str(tmp_path))
    pid = ended_pid()
    future = int((time.clock_gettime(time.CLOCK_BOOTTIME) + 60) * TICKS)
    write_process(tmp_path, pid, start=future, uid=54322, argv=b"new\0")
    row = look(enricher, pid)
    assert (row.user, row.note) == (None, ENDED)


def test_a_process_whose_memory_never_answers_costs_its_command_and_not_the_sample(
    tmp_path, monkeypatch
):
    write_process(tmp_path, 500, start=1000, uid=54321, argv=b"stuck\0")
    write_process(tmp_path, 501, start=1000, uid=54322, argv=b"good\0")
    release, read = threading.Event(), procfs._read

    def never(path, most):
        if path == f"{tmp_path}/500/cmdline":
            release.wait(20)
        return read(path, most)

    monkeypatch.setattr(procfs, "_read", never)
    monkeypatch.setattr(procfs, "_memory", Deadline(0.05, 2))
    enricher = Enricher(pids_are_ours=True, proc=str(tmp_path))
    try:
        stuck, good = look(enricher, 500), look(enricher, 501)
        assert (stuck.user, stuck.command, stuck.note) == ("uid:54321", None, COMMAND_STUCK)
        assert (good.user, good.command) == ("uid:54322", "good")
    finally:
        release.set()
    until(lambda: look(enricher, 500).command == "stuck", "its memory answers again")


def test_a_program_that_changes_its_title_or_runs_another_is_seen(tmp_path):
    enricher = Enricher(pids_are_ours=True, proc=str(tmp_path))
    write_process(tmp_path, 500, start=1000, uid=0, argv=b"launcher\0")
    assert look(enricher, 500).program == "launcher"
    write_process(tmp_path, 500, start=1000, uid=0, argv=b"train: epoch 2\0\0\0")
    assert look(enricher, 500).program == "launcher"
    assert look(enricher, 500, now=later(61)).command == "train: epoch 2"
    write_process(tmp_path, 500, start=1000, uid=0, argv=b"other\0", comm="other")
    assert look(enricher, 500, now=later(62)).program == "other"


def test_a_program_seen_while_it_starts_is_looked_at_again_with_the_next_sample(tmp_path):
    enricher = Enricher(pids_are_ours=True, proc=str(tmp_path))
    write_process(tmp_path, 500, start=1000, uid=0, argv=b"")
    assert (row := look(enricher, 500)).command is None
    assert row.program == "prog"
    write_process(tmp_path, 500, start=1000, uid=0, argv=b"/bin/prog\0now\0")
    assert look(enricher, 500, now=later(5)).command == "/bin/prog now"


@pytest.mark.parametrize("wall_step", [180.0, -3600.0, 31_536_000.0])
def test_a_stepped_wall_clock_does_not_touch_the_runtime(enricher, sleeper, wall_step):
    before = look(enricher, sleeper)
    after = look(enricher, sleeper, now=later(10, wall_step))
    assert after.runtime_seconds - before.runtime_seconds == pytest.approx(10, abs=1)
    assert after.started_at - before.started_at == pytest.approx(wall_step, abs=1)


def test_the_start_does_not_wobble_with_the_clock_readings(enricher, sleeper):
    first = look(enricher, sleeper)
    assert look(enricher, sleeper, now=later(5, 0.3)).started_at == first.started_at


# ---- Texts that others write. ----


def test_control_characters_and_foreign_bytes_become_one_visible_line(enricher, spawn):
    argv = [b"\x1b[31mred", b"new\nline", b"\xff\xfe caf\xe9"]
    process = spawn([b"sh", b"-c", b"read line", *argv], stdin=subprocess.PIPE)
    row = look(enricher, running(process))
    assert row.command == "sh -c read line \ufffd[31mred new line \ufffd\ufffd caf\ufffd"
    snapshot = HostSnapshot(gpus=[Gpu(index=0, processes=[row])])
    assert decode_snapshot(encode(snapshot)).gpus[0].processes[0].command == row.command


def test_a_kernel_name_with_brackets_blanks_and_newlines_is_one_line(enricher, spawn):
    code = (
        "import ctypes, time\n"
        "ctypes.CDLL(None).prctl(15, b'a) b\\n(\\xff', 0, 0, 0)\n"
        "time.sleep(600)"
    )
    process = spawn([sys.executable, "-SEc", code])
    renamed = b"a) b\n(\xff"
    until(lambda: procfs.read_stat(f"/proc/{process.pid}").comm == renamed, "it renamed itself")
    row = look(enricher, process.pid)
    assert (row.program, row.uid) == ("python -c", os.getuid())
    assert abs(row.started_at - time.time()) < 10


def test_a_rewritten_title_is_shown_without_its_padding(enricher, spawn):
    if shutil.which("perl") is None:
        pytest.skip("needs perl, which can rewrite its title")
    process = spawn(["perl", "-e", '$0 = "ray::train"; sleep 600', "x" * 200, "y" * 200])
    until(
        lambda: procfs.read_arguments(f"/proc/{process.pid}") == ["ray::train"],
        "it rewrote its title",
    )
    row = look(enricher, process.pid)
    assert (row.program, row.command) == ("ray::train", "ray::train")


@pytest.mark.parametrize(
    ("cmdline", "arguments"),
    [
        (b"ray::train\0\0\0\0", ["ray::train"]),
        (b"name   ", ["name"]),
        (b"nginx: worker process\0", ["nginx: worker process"]),
        (b"a\0\0b\0", ["a", "", "b"]),
        (b"", []),
    ],
)
def test_the_padding_of_an_argument_list_is_dropped_and_empty_arguments_are_not(
    tmp_path, cmdline, arguments
):
    (tmp_path / "cmdline").write_bytes(cmdline)
    assert procfs.read_arguments(str(tmp_path)) == arguments


def test_a_name_that_the_kernel_cut_is_shown_whole(enricher, spawn, tmp_path):
    program = tmp_path / "ansible-playbook-worker"
    shutil.copy(shutil.which("sleep"), program)
    row = look(enricher, running(spawn([str(program), "600"])))
    assert row.program == "ansible-playbook-worker"


def test_a_huge_command_line_is_cut_visibly_and_read_in_part_only(enricher, spawn):
    arguments = ["x" * 120_000] * 9  # one argument may have 128 KiB
    process = spawn(["sh", "-c", "read line", *arguments], stdin=subprocess.PIPE)
    row = look(enricher, running(process))
    assert len(row.command) == 300
    assert row.command.startswith("sh -c read line xxx")
    assert row.command.endswith("…")
    assert sum(map(len, procfs.read_arguments(f"/proc/{process.pid}"))) <= 16 * 1024


def test_more_rows_than_a_host_shows_are_cut_but_no_gpu_becomes_empty(enricher):
    pid = ended_pid()
    large = [Process(pid=pid, gpu_memory_used_mib=n) for n in range(2 * MOST_ROWS)]
    small = [Process(pid=os.getpid(), gpu_memory_used_mib=1)]
    gpus = [Gpu(index=0, processes=large), Gpu(index=1, processes=small)]
    errors = []
    enricher.enrich(gpus, moment.now(), errors)
    kept = [row.gpu_memory_used_mib for row in gpus[0].processes]
    assert kept == list(range(2 * MOST_ROWS - 1, MOST_ROWS - 1, -1))[: MOST_ROWS // 2]
    assert gpus[1].processes[0].user is not None
    assert errors == [
        f"{2 * MOST_ROWS + 1} process rows are more than the 2000 that a host shows: "
        "of each GPU the 1000 with the most memory are listed."
    ]


# ---- Other users. ----


@needs_root
def test_a_process_of_another_user_has_that_owner(enricher, spawn):
    row = look(enricher, running(spawn(["sleep", "600"], user=NOBODY)))
    assert (row.user, row.uid) == (pwd.getpwuid(NOBODY).pw_name, NOBODY)


@needs_root
def test_a_uid_without_an_account_is_shown_as_a_number(enricher, spawn):
    uid = next(uid for uid in range(231072, 240000) if not has_account(uid))
    row = look(enricher, running(spawn(["sleep", "600"], user=uid)))
    assert (row.user, row.uid, row.note) == (f"uid:{uid}", uid, None)


@needs_root
def test_a_set_user_id_program_belongs_to_who_started_it(enricher, spawn):
    code = f"import os, time; os.setresuid({NOBODY}, 0, 0); time.sleep(600)"
    process = spawn([sys.executable, "-SEc", code])
    folder = f"/proc/{process.pid}"
    until(lambda: procfs.read_uid(folder) == NOBODY, "it changed its real uid")
    assert os.stat(folder).st_uid == 0
    assert look(enricher, process.pid).uid == NOBODY


def has_account(uid):
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


HIDEPID = """
import os, subprocess, sys
from gpumon.collect import moment
from gpumon.collect.processes import Enricher
from gpumon.model import Gpu, Process, encode

roots = subprocess.Popen(["sleep", "600"])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
rows = [Process(pid=roots.pid, gpu_memory_used_mib=1), Process(pid=os.getpid())]
Enricher(pids_are_ours=True).enrich([Gpu(index=0, processes=rows)], moment.now(), [])
sys.stdout.buffer.write(encode(rows))
"""


@needs_root
@needs_unshare
@pytest.mark.system
def test_where_the_host_hides_other_users_processes_they_are_not_called_ended():
    # In a pid namespace of its own: before Linux 5.8 the option would hold for the whole host.
    mount = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", mount, "sh", sys.executable]
    done = subprocess.run([*command, "-c", HIDEPID], capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    hidden, own = msgspec.json.decode(done.stdout, type=list[Process])
    assert (hidden.user, hidden.program, hidden.note) == (None, None, HIDDEN)
    assert hidden.gpu_memory_used_mib == 1
    assert (own.uid, own.note) == (NOBODY, None)


# ---- Files that are kept open. ----


def opened(pid):
    """Return how many descriptors of this process are the stat of another one."""
    folder = f"/proc/{os.getpid()}/fd"
    links = []
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"{folder}/{name}"))
    return links.count(f"/proc/{pid}/stat")


def test_the_stat_of_a_known_process_stays_open_until_nobody_lists_it(enricher, sleeper):
    look(enricher, sleeper)
    assert opened(sleeper) == 0  # whoever asks once needs none
    for _ in range(3):
        assert look(enricher, sleeper).state == "sleeping"
        assert opened(sleeper) == 1
    enricher.enrich([Gpu(index=0, processes=[])], moment.now(), [])
    assert opened(sleeper) == 0


def test_an_open_stat_of_a_process_that_ended_is_not_believed(enricher, spawn):
    process = spawn(["sleep", "600"])
    for _ in range(2):
        look(enricher, running(process))
    assert opened(process.pid) == 1
    process.kill()
    process.wait()
    assert look(enricher, process.pid).note == ENDED
    assert opened(process.pid) == 0


def test_no_more_files_are_kept_open_than_half_of_what_is_allowed(enricher, spawn, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3, 3))
    pids = [running(spawn(["sleep", "600"])) for _ in range(3)]
    for kept in (0, 1, 1):
        assert [row.state for row in look(enricher, *pids)] == ["sleeping"] * 3
        assert sum(map(opened, pids)) == kept
    enricher.enrich([Gpu(index=0, processes=[])], moment.now(), [])
