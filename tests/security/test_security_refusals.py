"""Every refusal of the wire, through real processes: one log line, a clear row, nobody else hurt.

A real `gpumon web` polls real agents of which some must be refused, and takes pushes of which some
must be. A second one, the stranger, has an expired certificate and no token.
"""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import http.client
import ipaddress
import json
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cluster.real_processes import Page, Processes, Watcher, free_port, gpus_of
from commands.running import wait_until
from web_client import BROWSER
from web_client import Page as Html

from gpumon.certs.authority import Limits, Names
from gpumon.certs.folder import CertsFolder
from gpumon.model import Gpu, HostSnapshot, encode
from gpumon.summary import summarize
from gpumon.web.push import MAX_BODY_BYTES

pytestmark = pytest.mark.system

TOKEN = "right-s3cret-0123456789"
WRONG = "wrong-s3cret-0123456789"
PUSH = "push-s3cret-0123456789"
NOW = dt.datetime.now(dt.timezone.utc)
LONG_AGO = NOW - dt.timedelta(days=900)
LOOPBACK = (ipaddress.ip_address("127.0.0.1"),)
ELSEWHERE = (ipaddress.ip_address("127.0.0.2"),)

GOOD = ("good", "mutual", "pushing", "self")
AGENTS = ("good", "wrong-token", "mutual", "expired", "foreign", "other-name")
PUSHED = ("replayed", "oversized", "bad-token")
TIMES = 5
"""How often each refused push comes."""


class Case(NamedTuple):
    """One kind of refusal, and all that has to be said of it."""

    page: str
    """Whose row it is on: "server" or "stranger"."""
    host: str | None
    """None: there is no host that it could be told of."""
    kind: str | None
    """The short word on the row; None: the host is fresh, and a note says it."""
    row: str
    log: str
    """In the log of whoever keeps the page, once."""
    agent_log: str | None = None
    """In the log of `agent`, once."""
    agent: str | None = None


CASES = {
    "wrong token": Case(
        "server", "wrong-token", "wrong token", "refused it (401). Put the agent's token first in",
        "wrong-token: wrong token: the agent on",
        "agent: 127.0.0.1 was refused: wrong token", "wrong-token",
    ),
    "no token": Case(
        "stranger", "good", "wrong token", "wants one (401) and none is configured",
        "good: wrong token: the agent on",
        "agent: 127.0.0.1 was refused: no token", "good",
    ),
    "expired certificate of a host": Case(
        "server", "expired", "tls", "is not accepted (certificate has expired)",
        "expired: tls: the certificate of",
    ),
    "certificate of a foreign authority": Case(
        "server", "foreign", "tls", "Set tls.ca to the authority that signed it",
        "foreign: tls: the certificate of",
    ),
    "certificate for another name": Case(
        "server", "other-name", "tls", "use the name it is for",
        "other-name: tls: the certificate of",
    ),
    "expired certificate of a server": Case(
        "stranger", "mutual", "tls", "The agent's log says",
        "mutual: tls: ",
        "127.0.0.1 was refused: tls: its certificate is not accepted (certificate has expired)",
        "mutual",
    ),
    "push that was recorded": Case(
        "server", "replayed", None, "a push with a ticket that was used before",
        "replayed: a push with a ticket that was used before",
    ),
    "oversized push": Case(
        "server", "oversized", "failed", f"it has more than {MAX_BODY_BYTES} bytes: not read",
        f"a push of oversized from 127.0.0.1 was refused: it has more than {MAX_BODY_BYTES} bytes",
    ),
    "push with a wrong token": Case(
        "server", "bad-token", "wrong token", "a push as bad-token from 127.0.0.1 came with no",
        "a push of bad-token from 127.0.0.1 was refused: no token of web.push_token_file",
    ),
    "push without a token": Case(
        "server", None, None, "",
        "a push of nobody from 127.0.0.1 was refused: no token of web.push_token_file",
    ),
    "push of a host that nobody expects": Case(
        "server", None, None, "",
        "a push of nobodys from 127.0.0.1 was refused: nobodys is not expected here",
    ),
}  # fmt: skip


class Lab:
    """All of it, until everything was refused that is to be refused, several times."""

    def __init__(self, folder: Path) -> None:
        self.run = Processes(folder)
        self.ports = {name: free_port() for name in (*AGENTS, "pushing", "server", "stranger")}
        self.pages = {name: Page(self.ports[name]) for name in ("server", "stranger")}
        self.answers: dict[str, list[tuple[int, str]]] = {}
        """What each kind of refused push was told."""
        self._start_agents(folder)
        self._start_servers()

    def _start_agents(self, folder: Path) -> None:
        ours, theirs = CertsFolder(folder / "ca"), CertsFolder(folder / "other-ca")
        for authority in (ours, theirs):
            authority.init("an authority", Limits(), LONG_AGO, 3650, force=False)
        self.tls = tls = {
            "mutual": _tls(ours.add(Names(("mutual",), LOOPBACK), NOW, 730, force=False)),
            "expired": _tls(ours.add(Names(("expired",), LOOPBACK), LONG_AGO, 730, force=False)),
            "foreign": _tls(theirs.add(Names(("foreign",), LOOPBACK), NOW, 730, force=False)),
            "other-name": _tls(ours.add(Names(("other-name",), ELSEWHERE), NOW, 730, force=False)),
            "server": _tls(ours.add(Names(("server",)), NOW, 730, force=False)),
            "stranger": _tls(ours.add(Names(("stranger",)), LONG_AGO, 730, force=False)),
        }
        self.run.secret("token", TOKEN)
        self.run.secret("wrong", WRONG)
        self.run.secret("pushing-token", PUSH)
        files = {"wrong-token": "wrong", "pushing": "pushing-token"}
        for name in (*AGENTS, "pushing"):
            self.run.home(
                name,
                f"rpc_port: {self.ports[name]}\ntoken_file: ../{files.get(name, 'token')}\n"
                f"{tls.get(name, '')}"
                f"agent: {{bind: 127.0.0.1, sample_interval: 1, push_as: {name}}}\n",
            )
        for name in AGENTS:
            self.run.start(name, "agent", scenario=gpus_of(name))

    def _start_servers(self) -> None:
        self.run.secret("push-tokens", *(f"{name} {PUSH}" for name in ("pushing", *PUSHED)), WRONG)
        scheme = dict.fromkeys(("good", "wrong-token"), "http")
        hosts = {
            name: f"  - {{name: {name}, address: "
            f'"{scheme.get(name, "https")}://127.0.0.1:{self.ports[name]}"}}\n'
            for name in AGENTS
        }
        pushed = "".join(f"  - push://{name}\n" for name in ("pushing", *PUSHED))
        common = "poll_interval: 1\nrpc_timeout: 5\nagent: {sample_interval: 1}\n"
        self.run.home(
            "server",
            f"web_port: {self.ports['server']}\ntoken_file: ../token\n{self.tls['server']}{common}"
            f"web: {{push_token_file: ../push-tokens}}\n"
            f"hosts:\n  - self\n{''.join(hosts.values())}{pushed}",
        )
        self.run.home(
            "stranger",
            f"web_port: {self.ports['stranger']}\n{self.tls['stranger']}{common}"
            f"hosts:\n  - self\n{hosts['good']}{hosts['mutual']}",
        )
        for name in ("server", "stranger"):
            self.run.start(name, "web", scenario=gpus_of(name))
        page = self.pages["server"]
        wait_until(lambda: "hosts" in page.get("/healthz"), "the page is there")
        self.run.start("pushing", "agent", "--push", page.base, scenario=gpus_of("pushing"))

    def wait_for_failures(self, page: str, reason: str, count: int) -> None:
        """Wait until so many polls have failed for this reason."""
        metric = f'gpumon_poll_failures_total{{reason="{reason}"}} '

        def failed() -> bool:
            lines = self.pages[page].get("/metrics").splitlines()
            return any(int(line[len(metric) :]) >= count for line in lines if metric in line)

        wait_until(failed, f"{count} polls of {page} have failed: {reason}")

    def push(self, case: str, body: bytes, name: str | None, token: str = PUSH) -> None:
        """Push the same bytes TIMES times, each over a connection of its own."""
        for _ in range(TIMES):
            self.answers.setdefault(case, []).append(self._post(body, name, token))

    def _post(self, body: bytes, name: str | None, token: str) -> tuple[int, str]:
        headers = {"Content-Type": "text/xml"}
        if name is not None:
            login = base64.b64encode(f"{name}:{token}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["server"], timeout=15)
        try:
            connection.request("POST", "/RPC2", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def replay(self) -> None:
        """Push once as it should be, and then the very same bytes again."""
        snapshot = HostSnapshot(
            hostname="replayed",
            sample_age_seconds=0.0,
            sample_interval_seconds=300.0,  # so that it is fresh as long as the test lasts
            gpu_count=1,
            gpus=[Gpu(index=0, uuid="GPU-replayed", name="NVIDIA H100 80GB HBM3")],
        )
        url = f"http://replayed:{PUSH}@127.0.0.1:{self.ports['server']}/RPC2"
        with xmlrpc.client.ServerProxy(url) as rpc:
            _, ticket = rpc.push("", 0, "", "{}")
        summary = encode(summarize(snapshot)).decode()
        packed = base64.b64encode(gzip.compress(encode(snapshot))).decode()
        body = xmlrpc.client.dumps((ticket, 0.0, "r-1", summary, packed), "push").encode()
        status, told = self._post(body, "replayed", PUSH)
        assert (status, "taken" in told) == (200, True)
        self.push("push that was recorded", body, "replayed")


def _tls(made: Path) -> str:
    return f"tls: {{cert: {made}/cert.pem, key: {made}/key.pem, ca: {made}/ca.pem}}\n"


GREETING = xmlrpc.client.dumps(("", 0.0, "", "{}"), "push").encode()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("refusals"))
    try:
        yield lab
    finally:
        lab.run.end()


def test_nobody_else_notices_while_everything_is_refused_again_and_again(lab: Lab) -> None:
    lab.pages["server"].wait_until_fresh(GOOD)
    lab.pages["stranger"].wait_until_fresh(["self"])
    with (
        Watcher(lab.pages["server"], list(GOOD)) as watched,
        Watcher(lab.pages["stranger"], ["self"]) as strangers,
    ):
        lab.replay()
        lab.push("oversized push", b" " * (MAX_BODY_BYTES + 1), "oversized")
        lab.push("push with a wrong token", GREETING, "bad-token", "guessed-s3cret-0123456789")
        lab.push("push without a token", GREETING, None)
        lab.push("push of a host that nobody expects", GREETING, "nobodys", WRONG)
        lab.wait_for_failures("server", "tls", 3 * TIMES)
        lab.wait_for_failures("server", "wrong token", 2 * TIMES)
        lab.wait_for_failures("stranger", "tls", TIMES)
        lab.wait_for_failures("stranger", "wrong token", TIMES)
    assert watched.looks > 10
    assert strangers.looks > 10
    assert watched.seen == strangers.seen == set()


def test_each_push_is_refused_every_time_and_told_why(lab: Lab) -> None:
    statuses = {case: {status for status, _ in told} for case, told in lab.answers.items()}
    assert statuses == {
        "push that was recorded": {200},
        "oversized push": {413},
        "push with a wrong token": {401},
        "push without a token": {401},
        "push of a host that nobody expects": {200},
    }
    assert {len(told) for told in lab.answers.values()} == {TIMES}
    for _, told in lab.answers["push that was recorded"]:
        [[verdict, _]], _ = xmlrpc.client.loads(told)
        assert verdict == "again"
    for _, told in lab.answers["push of a host that nobody expects"]:
        with pytest.raises(xmlrpc.client.Fault, match="write push://nobodys into hosts"):
            xmlrpc.client.loads(told)


@pytest.mark.parametrize("name", CASES)
def test_each_refusal_is_one_line_in_the_log_and_a_clear_row(lab: Lab, name: str) -> None:
    case = CASES[name]
    assert sum(case.log in line for line in warnings(lab, case.page)) == 1
    if case.agent is not None:
        assert case.agent_log is not None
        assert [case.agent_log in line for line in warnings(lab, case.agent)] == [True]
    page = lab.pages[case.page]
    if case.host is None:
        assert not any("nobody" in host for host in page.hosts())
        return
    host = page.hosts()[case.host]
    if case.kind is None:
        assert (host["state"], host["reason"]) == ("fresh", None)
        said = " ".join(host["notes"])
    else:
        assert (host["state"], host["reason_kind"]) == ("never", case.kind)
        assert host["gpus"] == []
        said = host["reason"]
    assert case.row in said
    for told in (
        Html(page.get("/", BROWSER)).words,
        Html(page.get(f"/host/{case.host}", BROWSER)).words,
        " ".join(page.get(f"/host/{case.host}").split()),
    ):
        assert case.row in told
    assert host["state"] in page.get("/status.txt")


def test_the_logs_say_nothing_else_and_no_secret_stands_anywhere(lab: Lab) -> None:
    for page in ("server", "stranger"):
        expected = [case for case in CASES.values() if case.page == page]
        assert len(warnings(lab, page)) == len(expected), warnings(lab, page)
    for name in (*AGENTS, "pushing"):
        told = [case for case in CASES.values() if case.agent == name]
        assert len(warnings(lab, name)) == len(told), warnings(lab, name)
    said = [json.dumps(lab.answers)]
    for name in (*AGENTS, "pushing", "server", "stranger"):
        said += lab.run.log(name)
    for page in lab.pages.values():
        said += [page.get(path) for path in ("/", "/status.json", "/metrics")]
        said.append(page.get("/", BROWSER))
        said += [page.get(f"/host/{host}.json") for host in page.hosts()]
    assert "s3cret" not in "\n".join(said)
    assert "Traceback" not in "\n".join(said)


def warnings(lab: Lab, name: str) -> list[str]:
    """Return what a process had to say that somebody should look at."""
    return [line for line in lab.run.log(name) if line.startswith(("WARNING", "ERROR"))]
