"""web.hostnames: the page under names of its own only."""

from __future__ import annotations

import json

import pytest
from web_client import get
from web_cluster import every_state

from gpumon.config import Config, WebConfig
from gpumon.web.app import make_app


def page(*hostnames: str, prefix: str = ""):
    config = Config(web=WebConfig(hostnames=list(hostnames), prefix=prefix))
    return make_app(status=every_state, detail=lambda _: None, config=config)


@pytest.mark.parametrize("target", ["/", "/status.json", "/metrics", "/sd/prometheus", "/user/a"])
def test_a_page_that_came_by_a_name_of_its_own_making_reads_nothing(target):
    reply = get(page("gpus.lab.org"), target, host="evil.example")
    assert reply.code == 421
    assert "alice" not in reply.text
    assert "web.hostnames" in reply.text


@pytest.mark.parametrize(
    "host", ["gpus.lab.org", "GPUS.lab.org.", "gpus.lab.org:8042", "127.0.0.1:8042", "localhost"]
)
def test_its_own_names_and_addresses_are_taken(host):
    assert get(page("gpus.lab.org"), "/", host=host).code == 200


def test_without_the_setting_any_name_will_do():
    assert get(page(), "/", host="whatever.example").code == 200


def test_health_is_told_under_any_name():
    assert json.loads(get(page("gpus.lab.org"), "/healthz", host="x.example").body)


def test_a_prefix_changes_nothing_about_it():
    app = page("gpus.lab.org", prefix="/gpus")
    assert get(app, "/gpus/status.json", host="evil.example").code == 421
    assert get(app, "/gpus/status.json", host="gpus.lab.org").code == 200
