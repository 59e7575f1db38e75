"""Tokens: from the file to the decision about a header."""

from __future__ import annotations

import base64
import logging
import os

import pytest

from gpumon.errors import StartError
from gpumon.http.auth import Tokens


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_the_first_token_is_sent_and_all_are_accepted(tmp_path):
    path = tmp_path / "token"
    path.write_text("# new one\n  new-token  \n\nold-token\r\n")
    path.chmod(0o600)
    tokens = Tokens.load(path)
    assert tokens.first == "new-token"
    for token in ("new-token", "old-token"):
        assert tokens.accepts(f"Bearer {token}")
        assert tokens.accepts(f"bearer  {token} ")
        assert tokens.accepts(basic(f"gpumon:{token}"))


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "secret",
        "Bearer",
        "Bearer ",
        "Bearer secre",
        "Bearer secret2",
        "Bearer SECRET",
        "Bearer # comment",
        "Digest secret",
        "Basic secret",
        "Basic ???",
        "Basic é",
        "Bearer \u20ac",
        basic("secret"),
        basic("secret:"),
        basic(":"),
        basic("gpumon:secret2"),
    ],
)
def test_anything_else_is_refused(header):
    assert not Tokens(["secret"]).accepts(header)


def test_a_token_may_hold_colons_and_letters_of_all_kinds():
    tokens = Tokens(["a:b:ü"])
    assert tokens.accepts(basic("x:a:b:ü"))
    assert tokens.accepts("Bearer a:b:ü".encode().decode("latin-1"))


def test_no_token_and_an_empty_one_can_not_be_made():
    for tokens in ([], [""], ["a", ""]):
        with pytest.raises(ValueError, match="at least one token"):
            Tokens(tokens)


def test_a_token_is_never_shown(tmp_path, caplog):
    path = tmp_path / "token"
    path.write_text("secret-1\n")
    path.chmod(0o644)
    with caplog.at_level(logging.DEBUG):
        tokens = Tokens.load(path)
        tokens.accepts("Bearer secret-1")
    assert "secret" not in repr(tokens) + str(tokens) + caplog.text


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n", "   \n"])
def test_a_file_without_a_token_is_refused(tmp_path, content):
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(StartError, match=f"token_file: {path} holds no token; write one token a"):
        Tokens.load(path)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path):
    with pytest.raises(StartError, match="does not exist; write one token a line"):
        Tokens.load(tmp_path / "gone")
    with pytest.raises(StartError, match=r"can't be read \(Is a directory\)"):
        Tokens.load(tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StartError, match="is not a text file"):
        Tokens.load(binary)


@pytest.mark.parametrize(
    ("mode", "owner", "warned"),
    [
        (0o600, "ours", False),
        (0o400, "ours", False),
        (0o640, "ours", True),
        (0o644, "ours", True),
        (0o602, "ours", True),
        (0o640, "another", False),
        (0o644, "another", True),
        (0o660, "another", True),
    ],
)
def test_a_file_that_too_many_can_read_is_used_with_a_warning(
    tmp_path, caplog, monkeypatch, mode, owner, warned
):
    path = tmp_path / "token"
    path.write_text("secret\n")
    path.chmod(mode)
    if owner == "another":
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert Tokens.load(path).first == "secret"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * warned
    assert not warned or f"(mode {mode:04o})" in caplog.text
