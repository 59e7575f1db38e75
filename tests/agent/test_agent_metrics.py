"""The agent's /metrics, over a real socket and read by Prometheus' own tool."""

from __future__ import annotations

import gzip
import re
import time
from contextlib import contextmanager

import msgspec
import pytest
from agent_examples import busy, gpu, host, instance, latest, mig, process, unknown
from http_serving import get, running
from metrics.promtool import complaints

from gpumon.agent import metrics as module
from gpumon.agent.app import make_app
from gpumon.agent.metrics import MOST_USERS
from gpumon.config import Limits, MetricsConfig
from gpumon.http.auth import Tokens
from gpumon.http.certificates import Ends
from gpumon.http.server import Site
from gpumon.metrics import gpus
from gpumon.metrics.exposition import Metric
from gpumon.model import HealthEvent, HostInfo, HostSnapshot
from gpumon.simulate import SimulatedHost, host_names

GIB = 1024**3


def metrics(known, **config) -> str:
    app = make_app(lambda: known, None, **config)
    site = Site(name="agent", app=app, binds=["127.0.0.1:0"])
    with running(site) as [port]:
        answer = get(port, "/metrics")
        assert answer.status == 200
        assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
        return answer.body.decode()


def samples(text: str, name: str) -> list[str]:
    """Return the samples of one family, as they stand."""
    return re.findall(rf"^({re.escape(name)}(?:\{{.*\}})? .*)$", text, re.MULTILINE)


def names(text: str) -> set[str]:
    return set(re.findall(r"^(\w+)", text, re.MULTILINE))


def full(index: int):
    """A GPU of which everything is known."""
    return gpu(
        index,
        utilization_percent=57,
        memory_utilization_percent=20,
        memory_used_mib=1024,
        unattributed_mib=0,
        power_draw_watts=312.5,
        enforced_power_limit_watts=700.0,
        sm_clock_mhz=1980,
        memory_clock_mhz=2619,
        fan_speed_percent=30,
        performance_state=0,
        clock_event_reasons=["sw_power_cap"],
        ecc_mode=True,
        ecc_volatile_corrected=3,
        ecc_volatile_uncorrected=0,
        ecc_aggregate_corrected=9,
        ecc_aggregate_uncorrected=0,
        persistence_mode=True,
        encoder_utilization_percent=0,
        decoder_utilization_percent=0,
        pcie_generation=5,
        pcie_width=16,
        remapped_rows_corrected=1,
        remapped_rows_uncorrected=0,
        remapped_rows_pending=False,
        remapped_rows_failure=False,
        retired_pages_corrected=0,
        retired_pages_uncorrected=0,
        retired_pages_pending=False,
        mig_mode=False,
        pci_bus_id="00000000:19:00.0",
        processes=[process(71, gpu_memory_used_mib=1024)],
    )


@pytest.mark.parametrize("number", range(7))
def test_prometheus_accepts_names_units_and_form_of_every_kind_of_host(number):
    sample = SimulatedHost(host_names(7)[number], number).snapshot(time.time())
    sample.sample_age_seconds = None
    assert complaints(metrics(latest(sample))) == ""


def test_every_family_has_samples_and_passes_prometheus_rules():
    event = HealthEvent(
        kind="xid", code=79, level="fault", text="x", first_at=1, last_at=1, count=1, source="d"
    )
    known = host(
        msgspec.structs.replace(full(0), health=[event]),
        mig(1, instance(0, processes=[process(9)])),
        host=HostInfo(cpu_percent=12.5, memory_total_mib=1024, memory_available_mib=512),
    )
    text = metrics(latest(known), certificate_ends=Ends(own=1.9e9, authority=2.1e9))
    assert complaints(text) == ""
    families = [value for part in (gpus, module) for value in vars(part).values()]
    families += [metric for metric, _ in module._READINGS]
    assert names(text) == {family.name for family in families if isinstance(family, Metric)}


def test_the_ends_of_its_certificates_are_told_where_there_are_any():
    name = "gpumon_certificate_expires_timestamp_seconds"
    sound = latest(host(gpu(0)))
    told = samples(metrics(sound, certificate_ends=Ends(own=1.9e9, authority=2.1e9)), name)
    assert told == [
        f'{name}{{certificate="agent"}} 1900000000.0',
        f'{name}{{certificate="authority"}} 2100000000.0',
    ]
    assert samples(metrics(sound), name) == []


def test_readings_come_in_base_units_with_what_tells_gpus_apart():
    text = metrics(latest(host(full(3))))
    labels = '{host="gpu7",gpu="3",uuid="GPU-3",model="NVIDIA H100 80GB HBM3"}'
    for line in (
        f"gpumon_gpu_utilization_ratio{labels} 0.57",
        f"gpumon_gpu_memory_used_bytes{labels} {GIB}",
        f"gpumon_gpu_sm_clock_hertz{labels} 1980000000",
        f"gpumon_gpu_power_draw_watts{labels} 312.5",
        f'gpumon_gpu_ecc_errors_total{labels[:-1]},counted="volatile",error="corrected"}} 3',
        f'gpumon_gpu_clock_event_reason{labels[:-1]},reason="sw_power_cap"}} 1',
        f'gpumon_gpu_clock_event_reason{labels[:-1]},reason="hw_slowdown"}} 0',
        f'gpumon_gpu_user_memory_used_bytes{labels[:-1]},user="alice"}} {GIB}',
        f'gpumon_gpu_state{labels[:-1]},state="busy"}} 1',
        f'gpumon_gpu_state{labels[:-1]},state="free"}} 0',
    ):
        assert line in text.splitlines()


def test_what_is_not_known_has_no_sample_and_what_is_zero_has_one():
    text = metrics(
        latest(host(unknown(0), gpu(1, utilization_percent=0, temperature_celsius=None)))
    )
    assert [line.split()[-1] for line in samples(text, "gpumon_gpu_utilization_ratio")] == ["0.0"]
    assert 'gpu="0"' not in "".join(samples(text, "gpumon_gpu_memory_used_bytes"))
    assert samples(text, "gpumon_gpu_temperature_celsius") == []
    assert samples(text, "gpumon_gpu_power_draw_watts") == []
    [state] = [line for line in samples(text, "gpumon_gpu_state") if line.endswith("} 1")][:1]
    assert 'gpu="0"' in state
    assert 'state="unknown"' in state
    assert 'gpumon_gpu_processes{host="gpu7",gpu="0"' not in text


def test_neither_pid_nor_command_nor_program_is_in_it():
    text = metrics(latest(host(busy(0), gpu(1, processes=[process(4242421)]))))
    for secret in ("4242421", "train.py", "python", "token", "secret"):
        assert secret not in text
    assert 'user="alice"' in text


def test_users_stay_out_where_the_configuration_says_so():
    text = metrics(latest(host(busy(0))), metrics=MetricsConfig(users=False))
    assert "alice" not in text
    assert "user" not in "".join(line for line in text.splitlines() if "{" in line)
    assert samples(text, "gpumon_gpu_processes")[0].endswith(" 1")


def test_a_host_full_of_users_names_those_with_the_most_memory_and_counts_the_rest():
    rows = [process(n, user=f"u{n:04}", gpu_memory_used_mib=n) for n in range(1, MOST_USERS + 4)]
    text = metrics(latest(host(gpu(0, processes=rows))))
    named = samples(text, "gpumon_gpu_user_memory_used_bytes")
    assert len(named) == MOST_USERS
    assert not any(f'user="u{n:04}"' in line for n in (1, 2, 3) for line in named)
    assert samples(text, "gpumon_users_left_out") == ['gpumon_users_left_out{host="gpu7"} 3']


def test_a_process_of_nobody_known_has_no_user_rather_than_a_name():
    text = metrics(latest(host(gpu(0, processes=[process(5, user=None)]))))
    [line] = samples(text, "gpumon_gpu_user_processes")
    assert line.endswith(" 1")
    assert "user=" not in line


def test_an_old_sample_gives_no_reading_but_its_age_and_unknown_states():
    known = latest(host(busy(0)), age=500.0, sampler_error="NVML hangs", restarts=4)
    text = metrics(known)
    assert complaints(text) == ""
    [age] = samples(text, "gpumon_sample_age_seconds")
    assert 500 <= float(age.split()[1]) < 530
    assert samples(text, "gpumon_sample_fresh") == ["gpumon_sample_fresh 0"]
    assert samples(text, "gpumon_sampler_error") == ["gpumon_sampler_error 1"]
    assert samples(text, "gpumon_sampler_restarts_total") == ["gpumon_sampler_restarts_total 4"]
    assert samples(text, "gpumon_gpu_utilization_ratio") == []
    assert samples(text, "gpumon_gpu_user_processes") == []
    [state] = [line for line in samples(text, "gpumon_gpu_state") if line.endswith(" 1")]
    assert 'state="unknown"' in state


def test_before_the_first_sample_there_is_no_age_and_no_count_of_gpus():
    text = metrics(latest(None))
    assert complaints(text) == ""
    assert samples(text, "gpumon_sample_age_seconds") == []
    assert samples(text, "gpumon_host_gpus") == []
    assert samples(text, "gpumon_sample_fresh") == ["gpumon_sample_fresh 0"]


def test_a_driver_that_counts_no_gpu_is_zero_and_one_that_can_not_be_asked_is_absent():
    assert samples(metrics(latest(host())), "gpumon_host_gpus") == [
        'gpumon_host_gpus{host="gpu7"} 0'
    ]
    silent = HostSnapshot(hostname="gpu7", time=1.0, errors=["no driver"], error_kind="no driver")
    text = metrics(latest(silent))
    assert samples(text, "gpumon_host_gpus") == []
    assert samples(text, "gpumon_host_errors") == ['gpumon_host_errors{host="gpu7"} 1']


def test_instances_have_samples_of_their_own_and_the_processes_count_once():
    held = instance(0, processes=[process(9), process(10)], memory_used_mib=4096)
    text = metrics(latest(host(mig(0, held, instance(1)))))
    assert [line[-2:] for line in samples(text, "gpumon_gpu_processes")] == [" 2"]
    states = [line for line in samples(text, "gpumon_mig_state") if line.endswith(" 1")]
    assert ['state="busy"' in line for line in states] == [True, False]
    users = samples(text, "gpumon_gpu_user_processes")
    assert len(users) == 1
    assert 'profile="1g.10gb"' in users[0]


def test_an_idle_gpu_is_idle_here_as_on_the_page():
    since = 1_700_000_000.0 - 3 * 3600
    held = msgspec.structs.replace(
        busy(0),
        utilization_percent=0,
        unused_since=since,
        held_since=since,
        watched_since=since,
        processes=[process(7, started_at=since - 100)],
    )
    text = metrics(latest(host(held)), limits=Limits(idle_minutes=30))
    assert 'state="idle"} 1' in text
    [line] = samples(text, "gpumon_gpu_state_since_timestamp_seconds")
    assert float(line.split()[-1]) == pytest.approx(since)
    [exact] = samples(text, "gpumon_gpu_state_since_exact")
    assert exact.endswith(" 0")  # it was so when the agent began to watch
    seen = msgspec.structs.replace(held, unused_since=since - 60, watched_since=since - 60)
    text = metrics(latest(host(seen)), limits=Limits(idle_minutes=30))
    [exact] = samples(text, "gpumon_gpu_state_since_exact")
    assert exact.endswith(" 1")


@contextmanager
def counted(monkeypatch):
    """Count how often the text is made."""
    made = []
    real = module.AgentMetrics._made
    monkeypatch.setattr(
        module.AgentMetrics, "_made", lambda *args: made.append(args) or real(*args)
    )
    yield made


def test_the_text_is_made_once_for_a_sample_and_only_its_age_changes(monkeypatch):
    known = latest(host(busy(0)))
    clock = [known.taken_at + 1.0]
    with counted(monkeypatch) as made:
        app = make_app(lambda: known, None, clock=lambda: clock[0])
        with running(Site(name="agent", app=app, binds=["127.0.0.1:0"])) as [port]:
            first = get(port, "/metrics").body
            clock[0] += 2.5
            second = get(port, "/metrics", Accept_Encoding="gzip")
            assert second.getheader("Content-Encoding") == "gzip"
            text = gzip.decompress(second.body)
    assert len(made) == 1
    assert first.endswith(b"gpumon_sample_age_seconds 1.0\n")
    assert text.endswith(b"gpumon_sample_age_seconds 3.5\n")
    assert text.splitlines()[:-1] == first.splitlines()[:-1]


def test_it_is_closed_to_who_has_no_token():
    app = make_app(lambda: latest(host(busy(0))), Tokens(["right"]))
    with running(Site(name="agent", app=app, binds=["127.0.0.1:0"])) as [port]:
        assert get(port, "/metrics").status == 401
        assert get(port, "/metrics", Authorization="Bearer wrong").status == 401
        assert get(port, "/metrics", Authorization="Bearer right").status == 200
