"""An answer's bytes: what is an agent's is understood, everything else is told apart."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
import xmlrpc.client
import zlib

import pytest
from cluster_tools import a_gpu, a_snapshot, an_answer, an_unchanged_answer
from hypothesis import given
from hypothesis import strategies as st

from gpumon.cluster.sources.answer import (
    MAX_BYTES,
    MAX_PARSED_BYTES,
    Faulty,
    NoSuchMethod,
    Unexpected,
    texts,
    unpacked,
)

WHOLE = an_answer(a_snapshot(a_gpu()))


def parsed(body: bytes) -> list[bytes]:
    (values,), _ = xmlrpc.client.loads(body)
    return [value.encode() for value in values]


@pytest.mark.parametrize("body", [WHOLE, an_unchanged_answer("a-1", 3.5, "sampler hangs <&>")])
def test_cutting_at_the_seams_gives_what_a_parser_gives(body, monkeypatch):
    expected = parsed(body)
    monkeypatch.setattr(xmlrpc.client, "loads", None)  # the parser is not needed
    assert texts(body) == expected


def test_an_answer_in_another_layout_goes_through_the_parser():
    values = ["a-1", '{"hostname": "a & b < c"}', "AAAA"]
    other = xmlrpc.client.dumps((values,), methodresponse=True, encoding="utf-8")
    other = other.replace("\n", "\r\n  ")
    assert texts(other.encode()) == [value.encode() for value in values]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=9)))
def test_texts_arrive_as_they_were_whatever_is_in_them(values):
    body = xmlrpc.client.dumps((values,), methodresponse=True).encode()
    try:
        found = texts(body)
    except Unexpected:
        # U+FFFE and U+FFFF can't stand in XML.
        assert any("\ufffe" in value or "\uffff" in value for value in values)
    else:
        assert found == [value.encode() for value in values]


def test_an_answer_cut_at_any_byte_is_refused():
    for end in range(len(WHOLE) - 1):
        with pytest.raises(Unexpected):
            texts(WHOLE[:end])
    with pytest.raises(Unexpected, match="cut short"):
        texts(WHOLE[:500])


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", "an empty answer"),
        (b" \r\n", "an empty answer"),
        (b"<html><body>It works!</body></html>", "an HTML page"),
        (b"\n<!doctype html><title>x</title>", "an HTML page"),
        (b"<!DOCTYPE html><title>x</title>", "an HTML page"),
        (b'{"gpus": []}', "JSON"),
        (b"<?xml version='1.0'?><rss></rss>", "an XML document of another kind"),
        (b"hello", "something that is not XML"),
        (b"\xff\xfe<\0?\0", "something that is not XML"),
        (b"\x1f\x8b\x08\0", "something that is not XML"),
        (xmlrpc.client.dumps(([1, 2],), methodresponse=True).encode(), "of something else"),
        (xmlrpc.client.dumps(("text",), methodresponse=True).encode(), "of something else"),
        (xmlrpc.client.dumps((["a"],), methodname="poll").encode(), "of something else"),
        (b"<methodResponse><params></wrong></methodResponse>", "XML-RPC that can't be read"),
        (b"<methodResponse><params><param><value><int>" + b"9" * 6000, "cut short"),
    ],
)
def test_what_is_no_answer_is_named(body, found):
    with pytest.raises(Unexpected, match=found):
        texts(body)


@pytest.mark.parametrize(
    "doctype",
    [
        b'<!DOCTYPE a [<!ENTITY x "harmless">]>',
        b'<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;">]>',
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd">',
    ],
)
def test_a_document_type_declaration_is_refused_before_it_is_parsed(doctype, monkeypatch):
    monkeypatch.setattr(xmlrpc.client, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(Unexpected, match="DOCTYPE"):
        texts(b"<?xml version='1.0'?>" + doctype + b"<methodResponse>&x;</methodResponse>")


def test_a_page_with_a_doctype_is_not_parsed_either(monkeypatch):
    monkeypatch.setattr(xmlrpc.client, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(Unexpected, match="HTML"):
        texts(b'<!DOCTYPE html [<!ENTITY x "ha">]><html>&x;</html>')


def test_a_large_document_of_another_form_does_not_hold_up_the_loop(monkeypatch):
    monkeypatch.setattr(xmlrpc.client, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(Unexpected, match="large document"):
        texts(b"<methodResponse>" + b"\n" * MAX_PARSED_BYTES)


def test_an_agent_without_poll_is_told_apart_from_a_fault():
    gpumonitor = xmlrpc.client.Fault(1, "<class 'Exception'>:method \"poll\" is not supported")
    with pytest.raises(NoSuchMethod):
        texts(xmlrpc.client.dumps(gpumonitor).encode())
    with pytest.raises(NoSuchMethod):
        texts(xmlrpc.client.dumps(xmlrpc.client.Fault(-32601, "unknown method")).encode())
    with pytest.raises(Faulty) as fault:
        texts(xmlrpc.client.dumps(xmlrpc.client.Fault(7, "no")).encode())
    assert (fault.value.code, fault.value.text) == (7, "no")


# Compression that nobody asked for


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate"])
def test_an_answer_that_a_proxy_compressed_is_read(encoding):
    packed = zlib.compress(WHOLE) if encoding == "deflate" else gzip.compress(WHOLE)
    assert unpacked(packed, encoding) == WHOLE


def test_a_bomb_is_given_up_before_it_goes_off():
    bomb = gzip.compress(bytes(200 * 2**20), 9)
    assert len(bomb) < MAX_BYTES / 20
    tracemalloc.start()
    try:
        with pytest.raises(Unexpected, match="200 times its size"):
            unpacked(bomb, "gzip")
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_what_packs_well_without_being_a_bomb_is_given_up_at_the_limit():
    swelling = gzip.compress(random.Random(1).randbytes(MAX_BYTES // 2 + 1).hex().encode(), 1)
    with pytest.raises(Unexpected, match="8 MiB"):
        unpacked(swelling, "gzip")


def test_a_large_summary_with_much_alike_is_no_bomb():
    summary = json.dumps([{"user": "somebody", "pids": list(range(n, n + 9))} for n in range(9000)])
    assert unpacked(gzip.compress(summary.encode(), 9), "gzip") == summary.encode()


def test_broken_compression_is_named():
    with pytest.raises(Unexpected, match="broken"):
        unpacked(b"no gzip", "gzip")
    with pytest.raises(Unexpected, match="cut short"):
        unpacked(gzip.compress(WHOLE)[:-9], "gzip")
    with pytest.raises(Unexpected, match="not asked for"):
        unpacked(b"", "br")
