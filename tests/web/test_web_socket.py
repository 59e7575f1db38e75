"""The page over a real socket, as a browser asks for it."""

from __future__ import annotations

import gzip
import http.client
import threading

from web_client import BROWSER, site
from web_cluster import simulated
from web_serving import served


def test_page_head_and_304_come_over_one_connection():
    status, details, _ = simulated(8)
    headers = {"Accept": BROWSER, "Accept-Encoding": "gzip"}
    with served(site(status, details.get)) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        client.request("GET", "/gpus/", headers=headers)
        kept = client.sock
        first = client.getresponse()
        body = first.read()
        assert first.status == 200
        assert int(first.headers["Content-Length"]) == len(body)
        assert b"Users by GPUs held" in gzip.decompress(body)

        client.request("HEAD", "/gpus/", headers=headers)
        head = client.getresponse()
        assert (head.status, head.read()) == (200, b"")
        assert head.headers["Content-Length"] == str(len(body))

        known = {**headers, "If-None-Match": first.headers["ETag"]}
        client.request("GET", "/gpus/", headers=known)
        unchanged = client.getresponse()
        assert (unchanged.status, unchanged.read()) == (304, b"")
        assert unchanged.headers["ETag"] == first.headers["ETag"]

        client.request("GET", "/host/gpu-01", headers={"Accept": BROWSER})
        page = client.getresponse()
        assert page.status == 200
        assert b"<h1>gpu-01</h1>" in page.read()
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")

        client.request("GET", "/host/%ff%0d%0a?refresh=%ff", headers={"Accept": BROWSER})
        odd = client.getresponse()
        odd.read()
        assert odd.status == 404
        assert client.sock is kept
        client.close()


def test_many_browsers_get_the_same_page():
    status, details, _ = simulated(8)
    bodies: list[bytes] = []

    def ask(port: int) -> None:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        client.request("GET", "/", headers={"Accept": BROWSER})
        bodies.append(client.getresponse().read())
        client.close()

    with served(site(status, details.get)) as port:
        threads = [threading.Thread(target=ask, args=(port,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=15)
    assert len(bodies) == 16
    assert len(set(bodies)) == 1


def test_a_failure_inside_is_a_sentence_to_the_client_and_one_traceback_in_the_log(caplog):
    def broken():
        raise RuntimeError("the secret reason")

    with served(site(broken)) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        client.request("GET", "/status.json")
        reply = client.getresponse()
        body = reply.read()
        client.close()
    assert (reply.status, body.count(b"\n")) == (500, 1)
    assert b"its log says why" in body
    assert b"secret" not in body
    (record,) = [one for one in caplog.records if one.exc_info]
    assert "the secret reason" in str(record.exc_info[1])
