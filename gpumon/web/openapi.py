"""`/openapi.json`: every JSON answer of the server, described from the types that it is made of."""

from __future__ import annotations

from typing import Any

from gpumon.model import encode
from gpumon.version import __version__
from gpumon.web.schema import PROMISES, schemas

_REF = "#/components/schemas/{name}"


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
                f"only. {PROMISES}"
            ),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        # Relative to this document: right behind any proxy and under any prefix.
        "externalDocs": {"url": "schema.json", "description": "The same types as JSON Schema"},
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
            "/help.json": _document_at(
                "The help: states, words of the filter, addresses, exit codes", "Lists of words"
            ),
            "/openapi.json": _document_at("This document", "OpenAPI 3.1"),
            "/schema.json": _document_at("The types of all answers", "JSON Schema 2020-12"),
        },
        "components": {"schemas": schemas(_REF)},
    }


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


def _document_at(summary: str, description: str) -> dict[str, Any]:
    schema = {"application/json": {"schema": {"type": "object"}}}
    return {
        "get": {
            "summary": summary,
            "responses": {"200": {"description": description, "content": schema}},
        }
    }
