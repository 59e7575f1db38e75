"""XML-RPC on the server's side: hostile calls become Faults, values survive the round trip."""

from __future__ import annotations

import xmlrpc.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.http import xmlrpc as ours


def call(xml: str) -> bytes:
    return f"<?xml version='1.0'?><methodCall>{xml}</methodCall>".encode()


def test_a_call_is_taken_apart():
    body = xmlrpc.client.dumps(("a", 1, None, [True]), "some.method", allow_none=True).encode()
    assert ours.parse_call(body) == ("some.method", ("a", 1, None, [True]))


BOMB = """<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;">]>
<methodCall><methodName>&b;</methodName></methodCall>"""


NO_NUMBER = "<params><param><value><int>x</int></value></param></params>"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", ours.PARSE_ERROR),
        (b"{}", ours.PARSE_ERROR),
        (b"\xff\xff", ours.PARSE_ERROR),
        (b"<methodCall>", ours.PARSE_ERROR),
        (BOMB.encode(), ours.PARSE_ERROR),
        (BOMB.encode("utf-16"), ours.PARSE_ERROR),
        (b"<?xml version='1.0' encoding='no-such'?><methodCall/>", ours.PARSE_ERROR),
        (call(f"<methodName>a</methodName>{NO_NUMBER}"), ours.PARSE_ERROR),
        (call("<params></params>"), ours.INVALID_REQUEST),
        (call("<methodName></methodName>"), ours.INVALID_REQUEST),
        (xmlrpc.client.dumps((1,), methodresponse=True).encode(), ours.INVALID_REQUEST),
        (xmlrpc.client.dumps(xmlrpc.client.Fault(1, "x")).encode(), ours.PARSE_ERROR),
    ],
)
def test_what_is_no_call_becomes_a_fault(body, code):
    with pytest.raises(ours.RpcError) as caught:
        ours.parse_call(body)
    assert caught.value.code == code
    [text] = str(caught.value).splitlines()
    with pytest.raises(xmlrpc.client.Fault, match=text):
        xmlrpc.client.loads(ours.fault(caught.value))


def test_nesting_of_thousands_is_read_or_refused_but_breaks_nothing():
    depth = 3000
    value = "<value><array><data>" * depth + "</data></array></value>" * depth
    method, [nested] = ours.parse_call(
        call(f"<methodName>a</methodName><params><param>{value}</param></params>")
    )
    assert method == "a"
    assert isinstance(nested, list)


def test_values_that_xml_rpc_can_not_carry_become_ones_that_it_can():
    value = {
        "large": 2**31,
        "exact": 2**31 - 1,
        "negative": -(2**40),
        "nan": float("nan"),
        "inf": float("inf"),
        "none": None,
        "zero": 0,
        "true": True,
        "tuple": (1, "a"),
        "text": "a\x00b\x1b\ud800\ufffe<&>",
    }
    [back], _ = xmlrpc.client.loads(ours.answer(value))
    assert back == {
        "large": 2.0**31,
        "exact": 2**31 - 1,
        "negative": -(2.0**40),
        "nan": None,
        "inf": None,
        "none": None,
        "zero": 0,
        "true": True,
        "tuple": [1, "a"],
        "text": "a\ufffdb\ufffd\ufffd\ufffd<&>",
    }
    assert back["true"] is True


def test_a_type_without_a_form_is_a_fault_of_ours_that_shows():
    with pytest.raises(TypeError, match="set has no form in XML-RPC"):
        ours.answer({1, 2})


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_survives_as_far_as_xml_allows_it(text):
    [back], _ = xmlrpc.client.loads(ours.answer(text))
    assert back == ours.plain(text)


def test_spliced_envelopes_are_what_the_standard_library_writes():
    standard = xmlrpc.client.dumps((["r-1", "{}", "abc"],), methodresponse=True).encode()
    parts = [ours.string(text) for text in (b"r-1", b"{}", b"abc")]
    assert ours.enveloped(ours.array(parts)) == standard


@given(st.text(st.characters(codec="utf-8")))
def test_json_for_xml_says_the_same_and_holds_no_markup(text):
    import msgspec

    json = ours.json_text(msgspec.json.encode(text))
    assert not {b"&", b"<", b">"} & {json[i : i + 1] for i in range(len(json))}
    assert msgspec.json.decode(json) == text.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")
    [back], _ = xmlrpc.client.loads(ours.enveloped(ours.string(json)))
    assert back == json.decode()
