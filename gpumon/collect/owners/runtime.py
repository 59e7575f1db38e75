"""Names and labels of containers, asked of Docker or Podman over their socket: GET, nothing else.

A thread of its own asks, so that a runtime which does not answer costs names and not the sample.
"""

from __future__ import annotations

import io
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from gpumon.text import clean

DEADLINE_SECONDS = 5.0
_MOST_BYTES = 16 * 1024 * 1024
_PATH = "/containers/json"
_PAUSE_SECONDS = 5.0
"""Shortest time between two questions: a new container is one question, whatever there are."""
_PAUSE_AFTER_FAILURE_SECONDS = 60.0
_MISSING_SECONDS = 60.0
"""How long a container that the runtime does not have is not asked for again."""
_RENAMED_SECONDS = 60.0
"""How long a name is good before it is asked for again: a container can be renamed."""
_FORGET_SECONDS = 600.0
_NAME_LENGTH = 128


class Unfit(Exception):
    """The other side answers, and not with what was asked for. The message says how."""


class Facts(msgspec.Struct, frozen=True):
    """What the runtime says of one container."""

    name: str | None
    labels: dict[str, str]


class _Listed(msgspec.Struct):
    """One container of the answer, as far as it matters here."""

    Id: str
    Names: list[str] | None = None
    Labels: dict[str, str] | None = None


_decoder = msgspec.json.Decoder(list[_Listed])


class Runtime:
    """Answers from what it knows; what it does not know is asked for, and known a sample later."""

    def __init__(self, path: str, *, deadline: float = DEADLINE_SECONDS) -> None:
        self._path = path
        self._deadline = deadline
        self._now = 0.0
        self._due = 0.0
        self._known: dict[str, Facts] = {}
        self._fresh_until = 0.0
        self._used: dict[str, float] = {}
        self._wanted: dict[str, float] = {}
        self._missing: dict[str, float] = {}
        self._busy = False
        self._questions: queue.SimpleQueue[float] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[float, dict[str, Facts] | str]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.failure: str | None = None
        """Why the newest question was not answered, as a sentence."""

    def begin(self, now: float) -> None:
        """Begin a sample at `now` (seconds, monotonic), with what was answered since the last."""
        self._now = now
        while not self._answers.empty():
            self._take(*self._answers.get())
        if not self._busy and now > self._due + _PAUSE_AFTER_FAILURE_SECONDS:
            # Nobody has asked again: what they wanted is gone, and the failure of no concern.
            self.failure = None
            self._wanted.clear()
        self._missing = {key: until for key, until in self._missing.items() if now < until}

    def facts(self, container_id: str) -> tuple[Facts | None, bool]:
        """Return what is known of the container, and whether the runtime has said it.

        (None, True): it has no such container. Never waits.
        """
        facts = self._known.get(container_id)
        if facts is not None:
            self._used[container_id] = self._now
            if self._now >= self._fresh_until:
                self._ask()  # what is known holds until the answer comes
            return facts, True
        if container_id in self._missing:
            return None, True
        self._wanted.setdefault(container_id, self._now)
        self._ask()
        return None, False

    def _ask(self) -> None:
        if self._busy or self._now < self._due:
            return
        self._busy = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer_for_ever, daemon=True)
            self._thread.start()
        self._questions.put(self._now)

    def _take(self, asked_at: float, answer: dict[str, Facts] | str) -> None:
        self._busy = False
        if isinstance(answer, str):
            self.failure = answer
            self._due = self._now + _PAUSE_AFTER_FAILURE_SECONDS
            self._wanted.clear()  # whoever still wants it asks again; those who are gone do not
            return
        self.failure = None
        self._due = asked_at + _PAUSE_SECONDS
        for container_id, wanted_at in list(self._wanted.items()):
            if container_id in answer:
                del self._wanted[container_id]
            elif wanted_at <= asked_at:  # else it began to run while the answer was written
                del self._wanted[container_id]
                self._missing[container_id] = self._now + _MISSING_SECONDS
        # What has stopped is in no list; it is kept as long as somebody asks for it.
        oldest = self._now - _FORGET_SECONDS
        self._used = {key: used for key, used in self._used.items() if used >= oldest}
        kept = {key: facts for key, facts in self._known.items() if key in self._used}
        self._known = kept | answer
        self._fresh_until = asked_at + _RENAMED_SECONDS

    def _answer_for_ever(self) -> None:
        while True:
            asked_at = self._questions.get()
            answer: dict[str, Facts] | str
            try:
                answer = list_containers(self._path, self._deadline)
            except Exception as error:  # whatever a socket has for us; it is said in the snapshot
                answer = _sentence(self._path, error)
            self._answers.put((asked_at, answer))


def list_containers(path: str, deadline: float) -> dict[str, Facts]:
    """Return the running containers by their id of 64 digits.

    Takes `deadline` seconds at most in all. Raises OSError, Unfit, http.client.HTTPException,
    ValueError or msgspec.MsgspecError.
    """
    import http.client  # with all that it brings: 13 ms, for hosts with a socket only

    head = f"GET {_PATH} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
    with _connected(path, deadline) as (connection, end):
        connection.sendall(head.encode())
        answer = http.client.HTTPResponse(_Received(_read(connection, end)))  # type: ignore[arg-type]
    answer.begin()
    if answer.status != http.HTTPStatus.OK:
        raise Unfit(f"it answers {answer.status} {clean(answer.reason, 60)}")
    return {container.Id: _facts(container) for container in _decoder.decode(answer.read())}


def _facts(container: _Listed) -> Facts:
    name = clean((container.Names or [""])[0].lstrip("/"), _NAME_LENGTH)
    return Facts(name or None, container.Labels or {})


@contextmanager
def _connected(path: str, deadline: float) -> Iterator[tuple[socket.socket, float]]:
    end = time.monotonic() + deadline
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(deadline)
        connection.connect(path)
        yield connection, end


def _read(connection: socket.socket, end: float) -> bytes:
    """Return all until the other side closes; a drip does not lengthen the deadline."""
    received = bytearray()
    while True:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        data = connection.recv(65536)
        if not data:
            return bytes(received)
        received += data
        if len(received) > _MOST_BYTES:
            raise Unfit(f"its answer is longer than {_MOST_BYTES} bytes")


class _Received:
    """Bytes that were received, in the place of the socket that http.client wants to read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _sentence(path: str, error: Exception) -> str:
    if isinstance(error, TimeoutError):
        reason = "it does not answer in time"
    elif isinstance(error, OSError):
        reason = (error.strerror or type(error).__name__).lower()
    elif isinstance(error, Unfit):
        reason = str(error)
    else:
        reason = "its answer is not that of a container runtime"
    return (
        f"agent.container_socket: {clean(path, 200)} gives no names of containers ({reason}). "
        "Check the path, and that the agent may read and write it."
    )
