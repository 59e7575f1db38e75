"""Forms of a sample: right to the byte, made once, and only when asked for."""

from __future__ import annotations

import base64
import gzip
import threading
import xmlrpc.client

import msgspec
import pytest
from agent_examples import gpu as a_gpu
from agent_examples import host, large, latest, process
from hypothesis import given
from hypothesis import strategies as st

from gpumon.agent import answers
from gpumon.agent.answers import Answers, Forms, json_age, xml_age
from gpumon.agent.spliced import Spliced
from gpumon.model import decode_snapshot


@given(st.binary(max_size=2000), st.binary(max_size=65535), st.binary(max_size=2000))
def test_the_compressed_form_unpacks_to_the_plain_one(head, part, tail):
    form = Spliced(head, tail)
    assert form.plain(part) == head + part + tail
    assert gzip.decompress(form.gzip(part)) == head + part + tail
    assert gzip.decompress(form.gzip(b"other")) == head + b"other" + tail


def test_a_strict_reader_takes_the_compressed_form_for_one_whole_file():
    import zlib

    reader = zlib.decompressobj(wbits=31)
    text = reader.decompress(Spliced(b"a" * 5000, b"b" * 5000).gzip(b"12.5"))
    assert text == b"a" * 5000 + b"12.5" + b"b" * 5000
    assert reader.eof
    assert reader.unused_data == b""


def test_a_text_without_the_place_for_the_age_is_refused():
    with pytest.raises(ValueError, match="does not stand in the text"):
        Spliced.at(b"{}", b"null")


def test_json_with_an_age_is_what_the_supervisor_splices():
    now = latest(large())
    told = Forms(now).json().plain(json_age(now.age(now.taken_at + 2.5)))
    assert told == now.snapshot_json(now.taken_at + 2.5)
    assert decode_snapshot(told).sample_age_seconds == 2.5


def test_the_json_string_carries_the_same_text_through_xml():
    hostile = large()
    hostile.gpus[0].name = "<b>&amp;]]>\N{SNOWMAN}"
    now = latest(hostile, sampler_error="5 < 6 & 7 > 6")
    [text], _ = xmlrpc.client.loads(Forms(now).json_string().plain(json_age(2.5)))
    back = decode_snapshot(text)
    assert back.gpus[0].name == "<b>&amp;]]>\N{SNOWMAN}"
    assert back.sampler_error == "5 < 6 & 7 > 6"
    assert back.sample_age_seconds == 2.5


@pytest.mark.parametrize("age", [None, 0.0, 2.5, 1e9])
def test_structs_say_what_the_json_says(age):
    snapshot = large(gpus=2, processes=2)
    form = Forms(latest(snapshot)).native()
    [back], _ = xmlrpc.client.loads(form.plain(xml_age(age)))
    snapshot.sample_age_seconds = age
    assert back == msgspec.to_builtins(snapshot)


def test_numbers_that_xml_rpc_can_not_carry_become_doubles_in_structs():
    snapshot = host(a_gpu(0, ecc_aggregate_corrected=2**40, processes=[process(1, uid=2**32 - 2)]))
    [back], _ = xmlrpc.client.loads(Forms(latest(snapshot)).native().plain(xml_age(1.0)))
    assert back["gpus"][0]["ecc_aggregate_corrected"] == 2.0**40
    assert back["gpus"][0]["processes"][0]["uid"] == 2.0**32 - 2


def test_the_packed_form_holds_the_snapshot_without_an_age():
    now = latest(large(), sampler_error="no answer")
    back = decode_snapshot(gzip.decompress(base64.b64decode(Forms(now).packed(), validate=True)))
    assert back.sample_age_seconds is None
    assert back.sampler_error == "no answer"
    assert back.gpus == large().gpus


def test_before_the_first_sample_every_form_is_valid_and_says_why():
    forms = Forms(latest(None))
    for text in (
        forms.json().plain(json_age(None)),
        xmlrpc.client.loads(forms.json_string().plain(json_age(None)))[0][0],
        gzip.decompress(base64.b64decode(forms.packed())),
    ):
        back = decode_snapshot(text)
        assert back.gpu_count is None
        assert back.sampler_error == "no sample has been taken yet"
    [back], _ = xmlrpc.client.loads(forms.native().plain(xml_age(None)))
    assert back["sampler_error"] == "no sample has been taken yet"
    assert forms.summary().gpu_count is None


def test_a_form_is_made_once_by_any_number_of_threads_and_only_when_asked_for(monkeypatch):
    made = []
    compress = gzip.compress

    def counting(data, level):
        made.append(level)
        return compress(data, level)

    monkeypatch.setattr(answers.gzip, "compress", counting)
    now = latest(large())
    source = Answers(lambda: now)
    source.now().json()
    assert made == []
    threads = [threading.Thread(target=lambda: source.now().packed()) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    now = latest(large())
    source.now().packed()
    assert len(made) == 2
