"""`/schema.json`: the types of every JSON answer, every field with its meaning and its unit."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import msgspec

from gpumon.cluster.status import ClusterStatus
from gpumon.model import HostSnapshot, encode
from gpumon.version import __version__
from gpumon.web.fields import described_field
from gpumon.web.host_page import HostAnswer
from gpumon.web.user_page import UserAnswer


class ErrorAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """What is wrong with a request, in one sentence."""

    error: str
    near: list[str] = []
    """Names like the one that was asked for."""


class HealthAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """`/healthz`: the server works; nothing is said about the hosts' health."""

    status: str
    version: str
    simulated: bool
    revision: str
    time: float
    hosts: int
    hosts_fresh: int


ANSWERS: dict[str, type] = {
    "status.json": ClusterStatus,
    "host/NAME.json": HostAnswer,
    "user/NAME.json": UserAnswer,
    "healthz": HealthAnswer,
    "an agent's snapshot.json": HostSnapshot,
    "an error": ErrorAnswer,
}
"""What each address answers."""

PROMISES = (
    "null means unknown, never zero, idle or free. Times are seconds since 1970-01-01 UTC, those "
    "of a host's own reading by its clock, all others by the server's. Memory is in MiB. Fields "
    "may be added; `schema` rises when one changes its meaning."
)


def json_schema() -> bytes:
    """Return the document (JSON Schema 2020-12): all answers fit it, each fits its own type."""
    refs = [
        {"$ref": f"#/$defs/{type_.__name__}", "description": f"The answer of {address}"}
        for address, type_ in ANSWERS.items()
    ]
    return encode(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"gpumon {__version__}",
            "description": f"The JSON of gpumon's server and agents. {PROMISES}",
            "anyOf": refs,
            "$defs": schemas("#/$defs/{name}"),
        }
    )


def schemas(ref_template: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of every type in an answer, by its name.

    `ref_template` is what a reference to "{name}" looks like where they will stand.
    """
    _, found = msgspec.json.schema_components(ANSWERS.values(), ref_template=ref_template)
    described: dict[str, Any] = {}
    types = {type_.__name__: type_ for type_ in _all_types()}
    for name, schema in sorted(found.items()):
        docs = _field_docs(types[name])
        for field, told in schema["properties"].items():
            told["description"] = described_field(name, field, docs.get(field))
        # A default is what a reader may assume of an older server; ours writes every field.
        schema["required"] = list(schema["properties"])
        for field in schema["properties"].values():
            field.pop("default", None)
        described[name] = schema
    return described


def _all_types() -> list[type]:
    """Return every struct in the answers, each once."""
    todo: list[msgspec.inspect.Type] = list(msgspec.inspect.multi_type_info(ANSWERS.values()))
    found: dict[type, None] = {}
    while todo:
        info = todo.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls not in found:
                found[info.cls] = None
                todo += [field.type for field in info.fields]
        elif isinstance(info, msgspec.inspect.UnionType):
            todo += info.types
        elif isinstance(info, msgspec.inspect.ListType):
            todo.append(info.item_type)
        elif isinstance(info, msgspec.inspect.DictType):
            todo.append(info.value_type)
    return list(found)


def _field_docs(type_: type) -> dict[str, str]:
    """Return the docstring that stands below each field in the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(type_))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            docs[field.target.id] = " ".join(below.value.value.split())
    return docs
