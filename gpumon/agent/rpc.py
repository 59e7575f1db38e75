"""The agent's XML-RPC methods. All read what is there; none touches the driver."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import msgspec

from gpumon.agent.answers import Answers, Forms, json_age, xml_age
from gpumon.agent.free import free_gpus
from gpumon.agent.nvgpu import unknown_gpus
from gpumon.agent.spliced import Spliced
from gpumon.http import xmlrpc
from gpumon.http.xmlrpc import RpcError
from gpumon.model import SCHEMA, Gpu, MigInstance, Process, encode
from gpumon.version import __version__

log = logging.getLogger(__name__)

MAX_COUNT = 1024


class Ready(NamedTuple):
    """An answer in ready bytes, plain and compressed, but for its age."""

    form: Spliced
    part: bytes


class Method(NamedTuple):
    """A method as introspection shows it."""

    call: Callable[..., Any]
    signatures: list[list[str]]
    """Types of the result and of the parameters, one list for each way to call it."""


class AgentRpc:
    """Answers XML-RPC calls from the newest sample. For any thread."""

    def __init__(self, answers: Answers, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is the one that `Latest.taken_at` was read from."""
        self._answers = answers
        self._clock = clock
        self._methods = {
            "gpu_stats": Method(self.gpu_stats, [["string"]]),
            "snapshot": Method(self.snapshot, [["struct"]]),
            "snapshot_json": Method(self.snapshot_json, [["string"]]),
            "poll": Method(self.poll, [["array"], ["array", "string"]]),
            "gpus": Method(self.gpus, [["array"]]),
            "processes": Method(self.processes, [["array"]]),
            "free": Method(
                self.free,
                [["array"], ["array", "int"], ["array", "int", "int"],
                 ["array", "int", "int", "string"]],
            ),
            "version": Method(self.version, [["struct"]]),
            "health": Method(self.health, [["struct"]]),
            "system.listMethods": Method(self.list_methods, [["array"]]),
            "system.methodHelp": Method(self.method_help, [["string", "string"]]),
            "system.methodSignature": Method(self.method_signature, [["array", "string"]]),
        }  # fmt: skip

    def respond(self, body: bytes, *, gzip: bool) -> tuple[bytes, bool]:
        """Return the answer to a call, and whether it is compressed (only where `gzip` allows)."""
        try:
            answer = self._call(*xmlrpc.parse_call(body))
        except RpcError as error:
            return xmlrpc.fault(error), False
        if isinstance(answer, bytes):
            return answer, False
        if isinstance(answer, Ready):
            return (answer.form.gzip if gzip else answer.form.plain)(answer.part), gzip
        return xmlrpc.answer(answer), False

    def _call(self, name: str, parameters: tuple[Any, ...]) -> Any:
        method = self._method(name)
        try:
            inspect.signature(method.call).bind(*parameters)
        except TypeError as error:
            raise RpcError(
                xmlrpc.WRONG_PARAMETERS, f"{name}: {error}; see system.methodHelp"
            ) from error
        try:
            return method.call(*parameters)
        except RpcError:
            raise
        except Exception as error:  # the boundary to the caller, who is told nothing of it
            log.exception("the method %s failed", name)
            raise RpcError(
                xmlrpc.INTERNAL_ERROR, "the agent failed to answer this call; its log says why"
            ) from error

    def _method(self, name: object) -> Method:
        if not isinstance(name, str) or name not in self._methods:
            raise RpcError(
                xmlrpc.UNKNOWN_METHOD, "there is no such method; system.listMethods tells all"
            )
        return self._methods[name]

    def _age(self, forms: Forms) -> float | None:
        age = forms.latest.age(self._clock())
        return None if age is None else round(age, 3)

    # ---- Methods. Their docstrings are what system.methodHelp answers. ----

    def gpu_stats(self) -> bytes:
        """Return a string of JSON {gpus, procs}, as gpumonitor's agent does, with more keys."""
        forms = self._readable()
        if not forms.snapshot().gpus:
            # gpumonitor's page breaks on a host without GPUs, not on one that can't answer.
            raise RpcError(xmlrpc.NO_READING, "this host shows no GPU")
        fresh = forms.latest.is_fresh(self._clock())
        return forms.legacy() if fresh else forms.legacy_stale()

    def snapshot(self) -> Ready:
        """Return the newest sample as a struct. nil means unknown; memory is in MiB."""
        forms = self._answers.now()
        return Ready(forms.native(), xml_age(self._age(forms)))

    def snapshot_json(self) -> Ready:
        """Return the newest sample as a string of JSON: the same as GET /snapshot.json."""
        forms = self._answers.now()
        return Ready(forms.json_string(), json_age(self._age(forms)))

    def poll(self, since: object = None) -> bytes:
        """Return [revision, summary as JSON, base64 of the gzipped snapshot as JSON].

        When `since` is the newest revision: [revision, JSON with the sample's age and error].
        """
        if since is not None and not isinstance(since, str):
            raise RpcError(xmlrpc.WRONG_PARAMETERS, "poll: the revision must be a string")
        forms = self._answers.now()
        latest = forms.latest
        if since == latest.revision:
            known = {"sample_age_seconds": self._age(forms), "sampler_error": latest.sampler_error}
            parts = [xmlrpc.json_text(encode(known))]
        else:
            parts = [xmlrpc.json_text(latest.summary_json(self._clock())), forms.packed()]
        values = [latest.revision.encode(), *parts]
        return xmlrpc.enveloped(xmlrpc.array([xmlrpc.string(value) for value in values]))

    def gpus(self) -> list[dict[str, Any]]:
        """Return a struct for each GPU of the newest sample, without its processes.

        `processes_known` is false where the list of processes could not be read. Where nobody
        knows what GPUs this host has, it is a fault, as in processes() and free(): an empty list
        means that there is none.
        """
        forms = self._readable()
        age = self._age(forms)
        return [{"sample_age_seconds": age, **_gpu(gpu)} for gpu in forms.snapshot().gpus]

    def processes(self) -> list[dict[str, Any]]:
        """Return a struct for each process on each GPU or MIG instance of the newest sample.

        A GPU whose list could not be read has none here; see `processes_known` in gpus().
        """
        forms = self._readable()
        age = self._age(forms)
        rows = []
        for gpu in forms.snapshot().gpus:
            parts: list[tuple[Gpu | MigInstance, int | None]] = [(gpu, None)]
            for part, instance in parts + [(mig, mig.index) for mig in gpu.mig]:
                place = {
                    "sample_age_seconds": age,
                    "gpu_index": gpu.index,
                    "gpu_uuid": gpu.uuid,
                    "mig_index": instance,
                }
                rows += [{**place, **_builtins(process)} for process in part.processes or []]
        return rows

    def free(self, count: object = 1, min_free_mib: object = 0, name: object = "") -> list[Any]:
        """Return up to `count` GPUs or MIG instances of this host that are free to take.

        Each has at least `min_free_mib` MiB free, and `name` in its name (in any case of letters).
        One that is held, faulty, or not fully known is never among them; there is none at all when
        the sample is old. Least used first, then most free memory.
        """
        if not _is_int(count) or not 1 <= count <= MAX_COUNT:
            raise RpcError(
                xmlrpc.WRONG_PARAMETERS, f"free: count must be an int from 1 to {MAX_COUNT}"
            )
        if not _is_int(min_free_mib) or min_free_mib < 0:
            raise RpcError(xmlrpc.WRONG_PARAMETERS, "free: min_free_mib must be an int, 0 or more")
        if not isinstance(name, str):
            raise RpcError(xmlrpc.WRONG_PARAMETERS, "free: name must be a string")
        forms = self._readable()
        if not forms.latest.is_fresh(self._clock()):
            return []
        found = free_gpus(forms.snapshot(), forms.summary(), min_free_mib, name)
        # One that failed since then is left out of the next sample; nobody should take it before.
        failed = {gpu.index for gpu in forms.latest.skipped}
        return [_builtins(gpu) for gpu in found if gpu.index not in failed][:count]

    def _readable(self) -> Forms:
        """Return the newest sample; raise RpcError where it does not know what GPUs there are."""
        forms = self._answers.now()
        snapshot = forms.snapshot()
        if not snapshot.gpus and snapshot.gpu_count is None:
            raise RpcError(xmlrpc.NO_READING, unknown_gpus(snapshot))
        return forms

    def version(self) -> dict[str, Any]:
        """Return the versions of agent, data (schema), driver and CUDA."""
        snapshot = self._answers.now().snapshot()
        return {
            "agent_version": __version__,
            "schema": SCHEMA,
            "hostname": snapshot.hostname,
            "driver_version": snapshot.driver_version,
            "cuda_version": snapshot.cuda_version,
        }

    def health(self) -> dict[str, Any]:
        """Return how the sampling goes: age, errors, restarts, odd values, GPUs left out.

        `ok`: samples come on time; what they could not read is in `errors`.
        """
        forms = self._answers.now()
        latest, now = forms.latest, self._clock()
        return {
            "ok": latest.is_fresh(now),
            "revision": latest.revision,
            "sample_age_seconds": self._age(forms),
            "sample_interval_seconds": latest.interval,
            "sampler_error": latest.sampler_error,
            "last_error": latest.last_error,
            "errors": forms.snapshot().errors,
            "gpu_count": forms.snapshot().gpu_count,
            "restarts": latest.restarts,
            "out_of_range": latest.out_of_range,
            "skipped": [
                {
                    "index": gpu.index,
                    "uuid": gpu.uuid,
                    "name": gpu.name,
                    "error": gpu.error,
                    "next_try_seconds": round(max(0.0, gpu.retry_at - now), 3),
                }
                for gpu in latest.skipped
            ],
        }

    def list_methods(self) -> list[str]:
        """Return the names of all methods."""
        return sorted(self._methods)

    def method_help(self, name: object) -> str:
        """Return what a method does."""
        return inspect.getdoc(self._method(name).call) or ""

    def method_signature(self, name: object) -> list[list[str]]:
        """Return the types of result and parameters for each way to call a method."""
        return self._method(name).signatures


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _builtins(value: Process | msgspec.Struct) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(value)
    return built


def _gpu(gpu: Gpu) -> dict[str, Any]:
    """Return the GPU without the processes on it and on its instances."""
    row = _builtins(gpu)
    for part in (row, *row["mig"]):
        part["processes_known"] = part.pop("processes") is not None
    return row
