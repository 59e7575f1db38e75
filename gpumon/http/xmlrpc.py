"""XML-RPC on the server's side: calls taken apart, answers put together. No methods here.

The standard library's reader and writer do the work. What they let through that a peer could not
read, or that should not come from one, is dealt with here.
"""

from __future__ import annotations

import logging
import math
import re
import xmlrpc.client
from typing import Any

from gpumon.text import REPLACEMENT

log = logging.getLogger(__name__)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
WRONG_PARAMETERS = -32602
INTERNAL_ERROR = -32603
NO_READING = 1
"""Fault codes: the reserved ones are those that other XML-RPC servers use."""

ENVELOPE = (
    b"<?xml version='1.0'?>\n<methodResponse>\n<params>\n<param>\n",
    b"</param>\n</params>\n</methodResponse>\n",
)
"""Around one value; byte for byte what `xmlrpc.client.dumps` writes."""

STRING = (b"<value><string>", b"</string></value>\n")
ARRAY = (b"<value><array><data>\n", b"</data></array></value>\n")

_MAX_INT = 2**31 - 1
_ILLEGAL = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class RpcError(Exception):
    """A call that is answered with a Fault: a fixed code and a sentence for the caller."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def parse_call(body: bytes) -> tuple[str, tuple[Any, ...]]:
    """Return method name and parameters of a call. Raises RpcError for everything else.

    Documents with a type declaration are refused before they are parsed (entity bombs), as are
    those in UTF-16, in which that could not be seen.
    """
    if b"\0" in body or b"<!DOCTYPE" in body:
        raise RpcError(PARSE_ERROR, "the request must be XML in UTF-8 without a DOCTYPE")
    try:
        parameters, method = xmlrpc.client.loads(body, use_builtin_types=True)
    except Exception as error:  # a foreign parser over foreign text: any type, any depth
        log.debug("a request could not be read: %r", error)
        raise RpcError(PARSE_ERROR, "the request is not a well-formed XML-RPC call") from error
    if not isinstance(method, str) or not method:
        raise RpcError(INVALID_REQUEST, "the request is not an XML-RPC call: it names no method")
    return method, parameters


def answer(value: object) -> bytes:
    """Return the answer that carries `value`, reduced to what XML-RPC can carry (see `plain`)."""
    text = xmlrpc.client.dumps((plain(value),), methodresponse=True, allow_none=True)
    return text.encode()


def string(text: bytes) -> bytes:
    """Return `text`, in which no "&", "<" or ">" stands, as an XML-RPC string value."""
    return STRING[0] + text + STRING[1]


def array(values: list[bytes]) -> bytes:
    """Return an XML-RPC array of values that are XML already."""
    return ARRAY[0] + b"".join(values) + ARRAY[1]


def enveloped(value: bytes) -> bytes:
    """Return the answer that carries a value that is XML already."""
    return ENVELOPE[0] + value + ENVELOPE[1]


def fault(error: RpcError) -> bytes:
    """Return the answer that reports `error`."""
    return xmlrpc.client.dumps(xmlrpc.client.Fault(error.code, plain(str(error)))).encode()


def json_text(json: bytes) -> bytes:
    """Return JSON that says the same and can stand in XML as it is: no markup, no U+FFFE, U+FFFF.

    Control characters are escaped in JSON already.
    """
    for character, escape in (
        (b"&", rb"\u0026"),
        (b"<", rb"\u003c"),
        (b">", rb"\u003e"),
        (b"\xef\xbf\xbe", rb"\ufffd"),
        (b"\xef\xbf\xbf", rb"\ufffd"),
    ):
        json = json.replace(character, escape)
    return json


def plain(value: Any) -> Any:
    """Return `value` as types that every XML-RPC reader takes.

    Integers above 2^31-1 become doubles, NaN and infinity nil, characters that XML forbids U+FFFD.
    """
    if isinstance(value, str):
        return _ILLEGAL.sub(REPLACEMENT, value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_INT else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no form in XML-RPC")
