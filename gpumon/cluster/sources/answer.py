"""An agent's answer to poll(): bytes -> its two or three texts. Nothing in it is trusted."""

from __future__ import annotations

import xmlrpc.client
import zlib

from gpumon.http.xmlrpc import ARRAY, ENVELOPE, STRING, UNKNOWN_METHOD

MAX_BYTES = 8 * 1024 * 1024
"""Of an answer, before and after decompression. 16 GPUs full of processes need half of it."""
MOST_SWELLING = 200
"""So many times its size an answer may have when it is unpacked; what agents say packs by 20."""
PIECE_BYTES = 1024
MAX_PARSED_BYTES = 1024 * 1024
"""Of an answer that has to go through the XML parser, which would hold up the other hosts."""

_HTML = "an HTML page"
_HEAD = ENVELOPE[0] + ARRAY[0] + STRING[0]
_TAIL = STRING[1] + ARRAY[1] + ENVELOPE[1]
_BETWEEN = STRING[1] + STRING[0]


class Unexpected(Exception):
    """The answer is not what an agent sends. `str()` says what was found, without the rest."""

    hint = "Is rpc_port right?"


class Garbled(Unexpected):
    """The answer is of an agent's form, but what it holds can't be used."""

    hint = "Is the agent gpumon's, and of this version?"


class NoSuchMethod(Exception):
    """The other side speaks XML-RPC, but does not have the method."""


class Faulty(Exception):
    """The agent reports an XML-RPC fault."""

    def __init__(self, code: object, text: object) -> None:
        super().__init__(str(text))
        self.code = code
        self.text = text


def unpacked(body: bytes, encoding: str, most: int = MAX_BYTES) -> bytes:
    """Return the body, at most `most` bytes, without its Content-Encoding.

    Somebody on the way may compress what was sent plain.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Unexpected("an answer in an encoding that was not asked for")
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip or zlib, whichever it is
    data = bytearray()
    swollen = MOST_SWELLING * PIECE_BYTES
    try:
        # Piece by piece: a bomb shows by its first kilobyte, and the other hosts wait for us.
        for at in range(0, len(body), PIECE_BYTES):
            found = inflater.decompress(body[at : at + PIECE_BYTES], swollen + 1)
            data += found
            if len(found) > swollen:
                raise Unexpected(f"an answer that unpacks to {MOST_SWELLING} times its size")
            if len(data) > most:
                raise too_large(most)
    except zlib.error as error:
        raise Unexpected("an answer whose compression is broken") from error
    if not inflater.eof:
        raise Unexpected("an answer cut short")
    return bytes(data)


def too_large(most: int = MAX_BYTES) -> Unexpected:
    """Return what to raise for an answer of more than `most` bytes."""
    return Unexpected(f"an answer of more than {most // 2**20} MiB")


def texts(body: bytes) -> list[bytes]:
    """Return the texts in the answer: revision, summary and, where it changed, the detail.

    An agent's answer is cut at its known seams; any other XML goes through a parser. Raises
    Unexpected, NoSuchMethod or Faulty.
    """
    if body.startswith(_HEAD) and body.endswith(_TAIL):
        found = body[len(_HEAD) : -len(_TAIL)].split(_BETWEEN)
        if not any(b"<" in text or b"&" in text for text in found):
            return found
    return _parsed(body)


def _parsed(body: bytes) -> list[bytes]:
    found = value(body, "poll")
    if not isinstance(found, list):
        raise Unexpected("an XML-RPC answer of something else")
    return [_as_bytes(item) for item in found]


def value(body: bytes, asked: str) -> object:
    """Return the one value in the answer to the method `asked`, read by a parser.

    Raises Unexpected, NoSuchMethod or Faulty.
    """
    if len(body) > MAX_PARSED_BYTES:
        raise Unexpected("a large document that is not of an agent's form")
    if b"<!DOCTYPE" in body:
        doctype = "a document type declaration (<!DOCTYPE>), which is refused"
        raise Unexpected(_HTML if _is_html(body) else doctype)
    try:
        # As text, so that no declared encoding can hide a part of it from the look above.
        values, method = xmlrpc.client.loads(body.decode())
    except xmlrpc.client.Fault as fault:
        code, words = fault.faultCode, str(fault.faultString)
        if code == UNKNOWN_METHOD or (asked in words and "not supported" in words):
            raise NoSuchMethod from fault
        raise Faulty(code, words) from fault
    except Exception as error:  # a foreign parser over foreign text: any type
        raise Unexpected(looks_like(body)) from error
    if method is not None or len(values) != 1:
        raise Unexpected("an XML-RPC answer of something else")
    found: object = values[0]
    return found


def _as_bytes(item: object) -> bytes:
    if isinstance(item, str):
        return item.encode()
    raise Unexpected("an XML-RPC answer of something else")


def _is_html(body: bytes) -> bool:
    start = body[:256].lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html"))


def looks_like(body: bytes, wanted: str = "XML") -> str:
    """Say in a few words what the body is, which could not be read as `wanted`."""
    if not body.strip():
        return "an empty answer"
    if _is_html(body):
        return _HTML
    if body.lstrip()[:1] in (b"{", b"["):
        return "JSON that can't be read" if wanted == "JSON" else "JSON"
    if b"<methodResponse>" in body[:256]:
        cut = b"</methodResponse>" not in body[-64:]
        return "an answer cut short" if cut else "XML-RPC that can't be read"
    if body.startswith(b"<?xml"):
        return "an XML document of another kind, or an answer cut short"
    return f"something that is not {wanted}"
