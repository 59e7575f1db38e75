"""What runs on the host: one POSIX shell script a poll, and its output taken apart.

Each part of the output ends in a line of its own: the mark, the part's name, the exit code of its
program. The mark is another one in each poll, so that no name of a process can imitate it.
"""

from __future__ import annotations

import secrets

import msgspec

COMMAND = "sh -s"
"""The script comes through stdin: whatever shell the login has, it reads no more than this."""

QUERY_BEGINS = "nvidia-smi --query-gpu=index,uuid,"
"""How a query of ours is told from other people's nvidia-smi."""

MOST_BYTES = 1024 * 1024
"""Of the whole output: 16 GPUs full of processes need a third of it."""
MOST_PIDS = 4096
MOST_LIST_BYTES = 512 * 1024
"""Of the list of processes, which the host keeps in memory for a moment."""

# Whatever runs here ends with the connection: stdin stays open, and when it closes, the watcher
# kills the process group, itself with it. (Signals over SSH reach no login of root's and no old
# sshd.) `timeout` is for a connection that ends without sshd's noticing; without --foreground it
# would leave the group. All is one function and one line, so that a shell that reads no further
# than it must has read everything before the watcher reads.
_SCRIPT = r"""
main() {
exec 3<&0
{ while read -r more <&3; do :; done; kill -KILL 0; } >/dev/null 2>&1 &
watcher=$!
LC_ALL=C; export LC_ALL
PATH="$PATH:/usr/bin:/bin:/usr/local/bin:/usr/lib/wsl/lib:/run/current-system/sw/bin"; export PATH
end() { printf '\n%s %s %s\n' '@MARK@' "$1" "$2"; }
end begin 0
most=; timeout --foreground 1 true 2>/dev/null && most='timeout --foreground -s KILL @SECONDS@'
@GUARD@
printf 'hostname %s\n' "$(uname -n)"
printf 'time %s\n' "$(date +%s)"
printf 'namespace %s\n' "$(readlink /proc/self/ns/pid)"
read -r line </proc/loadavg && printf 'load %s\n' "$line"
read -r line </proc/uptime && printf 'uptime %s\n' "$line"
cat /proc/meminfo </dev/null
end host 0
$most nvidia-smi --query-gpu=@FIELDS@ --format=csv,nounits </dev/null 2>&1
end gpus $?
@INSTANCES@
list=$( { $most nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,process_name \
  --format=csv,nounits </dev/null 2>&1; printf '\ncode %s' $?; } | head -c @LIST_BYTES@ )
printf '%s\n' "$list"
end processes 0
pids=$(printf '%s\n' "$list" | awk -F', *' '
  !c { for (i = 1; i <= NF; i++) if ($i == "pid") c = i; next }
  $c ~ /^[0-9]+$/ && n++ < @MOST_PIDS@ { printf "%s%s", s, $c; s = "," }')
if [ -n "$pids" ]; then
  printf 'time %s\n' "$(date +%s)"
  $most ps -o pid= -o uid= -o etimes= -o stat= -o user:64= -o comm= -p "$pids" </dev/null 2>&1
  end ps $?
fi
end done 0
kill "$watcher"
}
main; exit 0
"""

_INSTANCES = "$most nvidia-smi -L </dev/null 2>&1\nend instances $?"

# Only after a poll that did not end well: a driver that hangs must not collect one nvidia-smi after
# the other, none of which can be killed. ps gives thousands of millions of seconds for a process
# that seems to begin in the future, as one of this moment may.
_GUARD = r"""
old=$(ps -u "$(id -u)" -o etimes= -o args= 2>/dev/null |
  awk '$1 > @SECONDS@ && $1 < 1000000000 && index($0, "@QUERY_BEGINS@") { print $1; exit }')
if [ -n "$old" ]; then printf '%s' "$old"; end stuck 0; end done 0; kill "$watcher"; exit 0; fi
"""


class Part(msgspec.Struct, frozen=True):
    """What one program printed, and how it ended."""

    text: str
    code: int


class CutShort(Exception):
    """The output ends before its end. `str()` names the last whole part, "" where there is none."""


def new_mark() -> str:
    """Return a mark that nobody can foresee."""
    return f"@gpumon-{secrets.token_hex(8)}"


def script(
    names: list[str], *, mark: str, seconds: int, instances: bool = False, guard: bool = False
) -> str:
    """Return the script that asks for the columns `names`.

    `seconds`: no program may run longer, where the host has `timeout`. `instances`: list those of
    MIG too. `guard`: start no nvidia-smi while one of an earlier poll still runs.
    """
    text = _SCRIPT.replace("@GUARD@", _GUARD.strip() if guard else "")
    text = text.replace("@INSTANCES@", _INSTANCES if instances else "")
    for key, value in (
        ("@MARK@", mark),
        ("@SECONDS@", str(seconds)),
        ("@FIELDS@", ",".join(names)),
        ("@QUERY_BEGINS@", QUERY_BEGINS),
        ("@MOST_PIDS@", str(MOST_PIDS)),
        ("@LIST_BYTES@", str(MOST_LIST_BYTES)),
    ):
        text = text.replace(key, value)
    return text.lstrip()


def taken_apart(output: bytes, mark: str) -> dict[str, Part]:
    """Return the parts of the output by name; what stands before the first mark is dropped.

    Raises CutShort where the last part is missing from its first MOST_BYTES.
    """
    parts: dict[str, Part] = {}
    lines: list[str] = []
    last = ""
    for line in output[:MOST_BYTES].decode("utf-8", errors="replace").split("\n"):
        if not line.startswith(mark + " "):
            lines.append(line)
            continue
        last, _, code = line[len(mark) + 1 :].partition(" ")
        parts[last] = Part("\n".join(lines).strip("\n"), int(code) if code.isdigit() else -1)
        lines = []
    if "done" not in parts:
        raise CutShort(last)
    return parts
