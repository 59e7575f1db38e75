"""`/openapi.json`: every JSON answer of the server, described from the types that it is made of."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import msgspec

from gpumon.cluster.status import ClusterStatus
from gpumon.model import encode
from gpumon.version import __version__
from gpumon.web.host_page import HostAnswer
from gpumon.web.user_page import UserAnswer

_REF = "#/components/schemas/{name}"


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


_ANSWERS = (ClusterStatus, HostAnswer, UserAnswer, HealthAnswer, ErrorAnswer)


def openapi() -> bytes:
    """Return the document (OpenAPI 3.1, JSON)."""
    return encode(_document())


def _document() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gpumon",
            "version": __version__,
            "description": (
                "Which GPU is free, who holds what since when, what is wasted or broken. Read "
                "only. null means unknown, never zero, idle or free. Times are seconds since "
                "1970-01-01 UTC by the server's clock, memory is in MiB. Fields may be added; "
                "`schema` rises when one changes its meaning."
            ),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        # Relative to this document: right behind any proxy and under any prefix.
        "servers": [{"url": "./"}],
        "paths": {
            "/status.json": _get("The cluster now", "ClusterStatus", live=True),
            "/host/{name}.json": _get(
                "One host with its last reading", "HostAnswer", live=True, named="host"
            ),
            "/user/{name}.json": _get(
                "What one user holds now; nobody knows all users, so every name has an answer",
                "UserAnswer",
                live=True,
                named="user",
            ),
            "/healthz": _get("Whether the server works", "HealthAnswer"),
            "/openapi.json": {
                "get": {
                    "summary": "This document",
                    "responses": {
                        "200": {
                            "description": "OpenAPI 3.1",
                            "content": {"application/json": {"schema": {"type": "object"}}},
                        }
                    },
                }
            },
        },
        "components": {"schemas": schemas()},
    }


def schemas() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of every type in an answer, by its name."""
    _, found = msgspec.json.schema_components(_ANSWERS, ref_template=_REF)
    described: dict[str, Any] = {}
    types = {type_.__name__: type_ for type_ in _all_types()}
    for name, schema in sorted(found.items()):
        docs = _field_docs(types[name])
        for field, words in docs.items():
            schema["properties"][field]["description"] = words
        # A default is what a reader may assume of an older server; ours writes every field.
        schema["required"] = list(schema["properties"])
        for field in schema["properties"].values():
            field.pop("default", None)
        described[name] = schema
    return described


def _all_types() -> list[type]:
    """Return every struct in the answers, each once."""
    todo: list[msgspec.inspect.Type] = list(msgspec.inspect.multi_type_info(_ANSWERS))
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


def _get(summary: str, schema: str, *, live: bool = False, named: str = "") -> dict[str, Any]:
    """Return one path. `live`: it has a validator; `named`: the kind of thing in its address."""
    responses: dict[str, Any] = {"200": _json("An answer", schema)}
    parameters: list[dict[str, Any]] = []
    if live:
        responses["304"] = {"description": "Nothing has changed since the ETag that was sent"}
        parameters.append(
            {
                "name": "If-None-Match",
                "in": "header",
                "description": "ETag of the answer that the client has",
                "schema": {"type": "string"},
            }
        )
    if named:
        responses["404"] = _json(f"No such {named}", "ErrorAnswer")
        parameters.append(
            {
                "name": "name",
                "in": "path",
                "required": True,
                "description": f"Name of the {named}, percent-encoded",
                "schema": {"type": "string", "minLength": 1},
            }
        )
    return {"get": {"summary": summary, "parameters": parameters, "responses": responses}}


def _json(description: str, schema: str) -> dict[str, Any]:
    ref = {"$ref": _REF.format(name=schema)}
    return {"description": description, "content": {"application/json": {"schema": ref}}}
