"""TLS and mutual TLS over real sockets, and what is said about files that can't be used."""

from __future__ import annotations

import re
import socket
import ssl
import time
import urllib.request
from pathlib import Path

import pytest
from certificates import issue, private_pem
from cryptography.hazmat.primitives import serialization
from http_serving import running

from gpumon.config import TlsConfig
from gpumon.errors import StartError
from gpumon.http import handshake
from gpumon.http.server import Site
from gpumon.http.tls import client_context, server_context


def hello(environ, start_response):
    start_response("200 OK", [])
    return [environ["wsgi.url_scheme"].encode()]


def site(tls: TlsConfig) -> Site:
    return Site(name="web", app=hello, binds=["127.0.0.1:0"], tls=tls)


def fetch(port: int, context: ssl.SSLContext) -> bytes:
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/", context=context, timeout=5) as answer:
        return answer.read()


def test_a_client_that_trusts_the_authority_is_served(tmp_path):
    authority = issue(tmp_path, "authority")
    issued = issue(tmp_path, "server", authority)
    with running(site(TlsConfig(cert=issued.cert, key=issued.key))) as [port]:
        assert fetch(port, ssl.create_default_context(cafile=authority.cert)) == b"https"


def test_a_key_may_stand_in_the_file_of_the_certificate(tmp_path):
    issued = issue(tmp_path, "authority")
    both = tmp_path / "both.pem"
    both.write_bytes(issued.cert.read_bytes() + issued.key.read_bytes())
    with running(site(TlsConfig(cert=both))) as [port]:
        assert fetch(port, ssl.create_default_context(cafile=issued.cert)) == b"https"


def test_with_a_ca_only_clients_with_its_certificate_are_served(tmp_path):
    authority = issue(tmp_path, "authority")
    issued = issue(tmp_path, "server", authority)
    client = issue(tmp_path, "client", authority)
    stranger = issue(tmp_path, "stranger", issue(tmp_path, "other"))
    tls = TlsConfig(cert=issued.cert, key=issued.key, ca=authority.cert)
    with running(site(tls)) as [port]:
        for shown in (None, stranger):
            context = ssl.create_default_context(cafile=authority.cert)
            if shown is not None:
                context.load_cert_chain(shown.cert, shown.key)
            with pytest.raises(OSError):  # noqa: PT011  in TLS 1.3 an alert, or a reset before it
                fetch(port, context)
        context = ssl.create_default_context(cafile=authority.cert)
        context.load_cert_chain(client.cert, client.key)
        assert fetch(port, context) == b"https"


def test_clients_that_never_shake_hands_are_dropped_and_delay_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(handshake, "HANDSHAKE_SECONDS", 0.5)
    issued = issue(tmp_path, "authority")
    context = ssl.create_default_context(cafile=issued.cert)
    with running(site(TlsConfig(cert=issued.cert, key=issued.key))) as [port]:
        silent = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(50)]
        began = time.monotonic()
        assert fetch(port, context) == b"https"
        assert time.monotonic() - began < 0.4
        for client in silent:
            assert client.recv(1) == b""
            client.close()


def test_plain_http_on_a_tls_port_costs_only_its_own_connection(tmp_path):
    issued = issue(tmp_path, "authority")
    with running(site(TlsConfig(cert=issued.cert, key=issued.key))) as [port]:
        with socket.create_connection(("127.0.0.1", port), 5) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP" not in plain.recv(1000)
        assert fetch(port, ssl.create_default_context(cafile=issued.cert)) == b"https"


def refusal(**files: Path) -> str:
    with pytest.raises(StartError) as caught:
        server_context(TlsConfig(**files))
    return str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    issued = issue(tmp_path, "a")
    gone = tmp_path / "gone.pem"
    assert refusal(cert=gone, key=issued.key).startswith(f"tls.cert: {gone} can't be read (No such")
    assert refusal(cert=issued.cert, key=gone).startswith(f"tls.key: {gone} can't be read")
    assert refusal(cert=issued.cert, key=issued.key, ca=gone).startswith(f"tls.ca: {gone} can't")


def test_a_key_of_another_certificate_is_refused(tmp_path):
    first, second = issue(tmp_path, "a"), issue(tmp_path, "b")
    sentence = refusal(cert=first.cert, key=second.key)
    assert f"tls.cert {first.cert} and key tls.key {second.key}" in sentence
    assert ": the key does not belong to the certificate; " in sentence


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path):
    issued = issue(tmp_path, "a")
    encryption = serialization.BestAvailableEncryption(b"geheim")
    issued.key.write_bytes(private_pem(issued.private_key, encryption))
    assert "the key must have no password" in refusal(cert=issued.cert, key=issued.key)


def test_files_that_are_no_pem_are_refused(tmp_path):
    issued = issue(tmp_path, "a")
    text = tmp_path / "text.pem"
    text.write_text("hello\n")
    assert f"tls.cert {text}" in refusal(cert=text, key=issued.key)
    assert f"tls.ca {text} can't be used" in refusal(cert=issued.cert, key=issued.key, ca=text)


DAMAGE = {
    "no certificate": ("hello\n", None, "{cert} holds no certificate in PEM"),
    "an empty file": ("", None, "{cert} holds no certificate in PEM"),
    "a damaged certificate": (
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        None,
        "the certificate in {cert} is damaged",
    ),
    "no key": (None, "hello\n", "{key} holds no private key in PEM"),
    "a damaged key": (
        None,
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "the key in {key} is damaged",
    ),
    "a key with a password": (
        None,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "the key in {key} has a password, and nobody is there to type it",
    ),
}


@pytest.mark.parametrize("use", [server_context, client_context])
@pytest.mark.parametrize("case", DAMAGE)
def test_a_certificate_that_can_not_be_used_is_told_in_words(tmp_path, case, use):
    issued = issue(tmp_path, "a")
    cert, key, words = DAMAGE[case]
    if cert is not None:
        issued.cert.write_text(cert)
    if key is not None:
        issued.key.write_text(key)
    with pytest.raises(StartError) as caught:
        use(TlsConfig(cert=issued.cert, key=issued.key))
    assert words.format(cert=issued.cert, key=issued.key) in str(caught.value)
    assert "_ssl" not in str(caught.value)
    assert "PEM lib" not in str(caught.value)


def test_an_authority_that_can_not_be_used_is_told_in_words(tmp_path):
    text = tmp_path / "ca.pem"
    for content, words in (
        ("hello\n", "it holds no certificate in PEM"),
        (DAMAGE["a damaged certificate"][0], f"the certificate in {text} is damaged"),
    ):
        text.write_text(content or "")
        with pytest.raises(StartError, match=re.escape(words)):
            client_context(TlsConfig(ca=text))


def test_a_ca_alone_is_not_enough_to_serve(tmp_path):
    assert "tls.cert is not set" in refusal(ca=issue(tmp_path, "a").cert)
