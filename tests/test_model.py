from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon import model
from gpumon.model import (
    SCHEMA,
    Gpu,
    HealthEvent,
    HealthLevel,
    HostInfo,
    HostSnapshot,
    MigInstance,
    Process,
    decode_snapshot,
    encode,
    splice,
)

STRUCTS: list[type[msgspec.Struct]] = [
    Process,
    HealthEvent,
    MigInstance,
    Gpu,
    HostInfo,
    HostSnapshot,
]

ints = st.integers(min_value=-(2**63), max_value=2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=20)


def whole(kind: type[msgspec.Struct], **fields: st.SearchStrategy[object]) -> st.SearchStrategy:
    """Return a strategy that fills every field by its type; `fields` go before that."""
    hints = {
        "int": ints,
        "float": floats,
        "str": texts,
        "bool": st.booleans(),
        "HealthLevel": st.sampled_from(get_args(HealthLevel)),
        "list[str]": st.lists(texts, max_size=3),
        "dict[str, str]": st.dictionaries(texts, texts, max_size=3),
    }
    for name, annotation in kind.__annotations__.items():
        if name not in fields:
            kind_of, *rest = annotation.split(" | ")
            fields[name] = st.none() | hints[kind_of] if rest else hints[kind_of]
    return st.fixed_dictionaries(fields).map(lambda given: kind(**given))


processes = st.lists(whole(Process), max_size=2)
instances = st.lists(whole(MigInstance, processes=st.none() | processes), max_size=2)
health = st.lists(whole(HealthEvent), max_size=2)
gpus = st.lists(
    whole(Gpu, processes=st.none() | processes, mig=instances, health=health), max_size=2
)
snapshots = whole(HostSnapshot, gpus=gpus, host=whole(HostInfo))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)
@given(snapshots)
def test_every_snapshot_survives_its_json(snapshot: HostSnapshot) -> None:
    assert decode_snapshot(encode(snapshot)) == snapshot


def test_every_optional_field_may_be_unknown() -> None:
    gpu = Gpu(index=0, processes=[Process(pid=1)], mig=[MigInstance(index=0)])
    snapshot = HostSnapshot(gpus=[gpu])
    again = decode_snapshot(encode(snapshot))
    assert again == snapshot
    for struct in (again, again.host, again.gpus[0], again.gpus[0].mig[0]):
        for name in struct.__struct_fields__:
            if "None" in type(struct).__annotations__[name]:
                assert getattr(struct, name) is None or name == "processes", name


@pytest.mark.parametrize("kind", STRUCTS)
def test_unknown_is_written_as_null_and_never_left_out(kind: type[msgspec.Struct]) -> None:
    required: dict[str, object] = {
        field.name: 0 if field.type is int else 0.0 if field.type is float else ""
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    written = msgspec.json.decode(encode(kind(**required)))
    assert list(written) == list(kind.__struct_fields__)
    unknown = {f.name for f in msgspec.structs.fields(kind) if f.default is None}
    assert {name for name, value in written.items() if value is None} == unknown


def test_no_measurement_is_zero_or_false_unless_somebody_says_so() -> None:
    for kind in STRUCTS:
        for field in msgspec.structs.fields(kind):
            if field.name in ("schema", "lost", "simulated", "unified_memory"):
                continue  # these say that something was found, so False means "not found"
            default = field.default
            assert default in (msgspec.NODEFAULT, None, ""), f"{kind.__name__}.{field.name}"


def test_zero_is_kept_apart_from_unknown() -> None:
    gpu = Gpu(
        index=0, utilization_percent=0, memory_used_mib=0, power_draw_watts=0.0, ecc_mode=False
    )
    again = decode_snapshot(encode(HostSnapshot(gpus=[gpu], gpu_count=0))).gpus[0]
    assert (again.utilization_percent, again.memory_used_mib) == (0, 0)
    assert again.power_draw_watts == 0.0
    assert again.ecc_mode is False
    assert again.temperature_celsius is None


def test_an_empty_process_list_is_not_an_unknown_one() -> None:
    gpus = [Gpu(index=0, processes=[]), Gpu(index=1, processes=None)]
    again = decode_snapshot(encode(HostSnapshot(gpus=gpus))).gpus
    assert again[0].processes == []
    assert again[1].processes is None


def test_keys_of_a_newer_agent_are_ignored() -> None:
    data = '{"hostname": "h", "new": {"a": [1]}, "gpus": [{"index": 0, "newer": 1, "x": [2]}]}'
    assert decode_snapshot(data) == HostSnapshot(hostname="h", gpus=[Gpu(index=0)])


def test_keys_that_an_older_agent_does_not_send_are_unknown() -> None:
    snapshot = decode_snapshot('{"gpus": [{"index": 3, "processes": [{"pid": 7}]}]}')
    assert snapshot.gpu_count is None
    assert snapshot.sample_age_seconds is None
    assert snapshot.gpus[0].utilization_percent is None
    assert snapshot.gpus[0].processes == [Process(pid=7)]
    assert decode_snapshot("{}") == HostSnapshot()


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ('{"gpus": [{"index": 0}, {"index": "1"}]}', "$.gpus[1].index"),
        ('{"gpus": [{}]}', "$.gpus[0]"),
        ('{"gpus": [{"index": 0, "processes": [{"user": "a"}]}]}', "$.gpus[0].processes[0]"),
        ('{"gpus": [{"index": 0, "utilization_percent": 1.5}]}', "$.gpus[0].utilization_percent"),
        ('{"host": null}', "$.host"),
        ('{"gpu_count": true}', "$.gpu_count"),
    ],
)
def test_a_wrong_type_is_refused_with_its_place(data: str, place: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        decode_snapshot(data)
    assert place in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"[]", b'{"gpus"', b"\xff\xfe", b'{"time": NaN}', b'{"time": 1e999}'],
)
def test_what_is_no_snapshot_raises_msgspecs_error_and_no_other(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_snapshot(data)


def test_large_numbers_come_through_whole() -> None:
    gpu = Gpu(
        index=2**31,
        memory_total_mib=2**53 + 1,
        ecc_aggregate_corrected=2**63 - 1,
        processes=[Process(pid=2**40, started_at=1.7e308, runtime_seconds=0.1)],
    )
    snapshot = HostSnapshot(time=1_763_000_000.123456, gpus=[gpu] * 300)
    assert decode_snapshot(encode(snapshot)) == snapshot


def test_two_structs_never_share_a_default() -> None:
    one, other = HostSnapshot(), HostSnapshot()
    one.errors.append("x")
    one.gpus.append(Gpu(index=0))
    one.host.cpu_count = 4
    assert other == HostSnapshot()
    first, second = Gpu(index=0), Gpu(index=1)
    first.unknown["power_draw_watts"] = "not supported"
    first.mig.append(MigInstance(index=0))
    assert second.unknown == {}
    assert second.mig == []


def test_splice_puts_age_and_reason_in_front_and_leaves_the_rest() -> None:
    snapshot = HostSnapshot(hostname="h", time=5.0, gpu_count=1, gpus=[Gpu(index=0)])
    spliced = splice(encode(snapshot), 1.23456, 'said "no"\n')
    assert spliced.startswith(b'{"schema":%d,"sample_age_seconds":1.235,"sampler_error":' % SCHEMA)
    again = decode_snapshot(spliced)
    assert again.sampler_error == 'said "no"\n'
    assert again.sample_age_seconds == 1.235
    again.sample_age_seconds = again.sampler_error = None
    assert again == snapshot


def test_splice_of_nothing_changes_nothing() -> None:
    data = encode(HostSnapshot(hostname="h"))
    assert splice(data, None, None) == data


def test_an_age_of_zero_is_an_age() -> None:
    assert decode_snapshot(splice(encode(HostSnapshot()), 0.0, None)).sample_age_seconds == 0.0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        encode(HostSnapshot(sample_age_seconds=1.0)),
        encode(HostSnapshot(sampler_error="x")),
        encode(HostSnapshot(schema=SCHEMA + 1)),
    ],
)
def test_only_bytes_that_were_never_spliced_are_taken(data: bytes) -> None:
    with pytest.raises(ValueError, match=f"schema {SCHEMA} was expected"):
        splice(data, 1.0, None)


def test_encoding_keeps_to_one_line() -> None:
    assert b"\n" not in encode(HostSnapshot(hostname="a\nb", errors=["c\r\nd"]))


def test_the_model_touches_nothing_outside() -> None:
    assert not {"os", "time", "socket"} & set(vars(model))
