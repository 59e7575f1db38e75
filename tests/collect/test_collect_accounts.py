"""Names of uids, when the account database is slow, silent or wrong."""

from __future__ import annotations

import os
import pwd
import threading

import pytest
from collect_helpers import until

from gpumon.collect import patience
from gpumon.collect.accounts import SILENT, Accounts, look_up

ANN = 231072


@pytest.fixture
def directory():
    """An account database that answers when it is let."""

    class Directory:
        def __init__(self) -> None:
            self.answers = threading.Event()
            self.names: dict[int, str | None] = {ANN: "ann"}
            self.asked: list[int] = []

        def look_up(self, uid: int) -> str | None:
            self.asked.append(uid)
            assert self.answers.wait(10)
            return self.names.get(uid)

    made = Directory()
    yield made
    made.answers.set()


def test_names_come_from_the_hosts_account_database():
    me = os.getuid()
    assert look_up(me) == pwd.getpwuid(me).pw_name
    accounts = Accounts()
    accounts.begin(0.0)
    assert accounts.name(me) == (pwd.getpwuid(me).pw_name, None)


def test_a_silent_database_costs_names_once_and_not_the_sample(directory):
    accounts = Accounts(directory.look_up, patience=0.05)
    accounts.begin(0.0)
    assert accounts.name(ANN) == (f"uid:{ANN}", SILENT)
    assert accounts.name(ANN + 1) == (f"uid:{ANN + 1}", SILENT)
    before = threading.active_count()
    for sample in range(20):
        accounts.begin(5.0 * sample)
        assert accounts.name(ANN) == (f"uid:{ANN}", SILENT)
    assert threading.active_count() == before
    directory.answers.set()
    until(lambda: accounts.name(ANN) == ("ann", None), "the name is there")
    assert directory.asked.count(ANN) == 1


def test_a_uid_without_a_name_is_asked_again_after_a_minute_and_a_name_after_ten(directory):
    directory.answers.set()
    accounts = Accounts(directory.look_up)
    unknown = ANN + 1
    for now, times in ((0.0, 1), (59.0, 1), (61.0, 2), (599.0, 3)):
        accounts.begin(now)
        assert accounts.name(ANN) == ("ann", None)
        until(
            lambda times=times: (
                accounts.name(unknown) == (f"uid:{unknown}", None)
                and directory.asked.count(unknown) == times
            ),
            f"asked {times} times",
        )
    assert directory.asked.count(ANN) == 1
    directory.names.update({ANN: "ann2", unknown: "ben"})
    accounts.begin(700.0)
    until(lambda: accounts.name(ANN) == ("ann2", None), "the new name is there")
    until(lambda: accounts.name(unknown) == ("ben", None), "the first name is there")


def test_a_name_once_known_is_not_taken_back_by_a_directory_that_is_down(directory):
    directory.answers.set()
    accounts = Accounts(directory.look_up)
    accounts.begin(0.0)
    assert accounts.name(ANN) == ("ann", None)
    del directory.names[ANN]
    for second in (601.0, 662.0, 1300.0):
        accounts.begin(second)
        accounts.name(ANN)
        until(lambda: not accounts._names._pending, "it was asked again")
        assert accounts.name(ANN) == ("ann", None)
    directory.names[ANN] = "anna"
    accounts.begin(2000.0)
    accounts.name(ANN)
    until(lambda: accounts.name(ANN) == ("anna", None), "a new name is taken")


def test_an_old_name_stays_while_the_database_is_silent(directory):
    directory.answers.set()
    accounts = Accounts(directory.look_up, patience=0.05)
    accounts.begin(0.0)
    assert accounts.name(ANN) == ("ann", None)
    directory.answers.clear()
    accounts.begin(10_000.0)
    assert accounts.name(ANN) == ("ann", None)


def test_questions_that_wait_for_a_silent_database_do_not_fill_the_memory(directory, monkeypatch):
    monkeypatch.setattr(patience, "_MOST_KEPT", 3)
    accounts = Accounts(directory.look_up, patience=0.0)
    accounts.begin(0.0)
    for uid in range(10):
        assert accounts.name(uid) == (f"uid:{uid}", SILENT)
    directory.answers.set()
    directory.names[ANN] = "ann"
    until(lambda: len(directory.asked) == 3, "the questions that wait are answered")
    until(lambda: accounts.name(ANN) == ("ann", None), "others can be asked")
    assert directory.asked == [0, 1, 2, ANN]


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("passwd: files systemd\n", True),
        ("group: files ldap\npasswd:\tfiles [SUCCESS=merge] systemd # sss\n", True),
        ("passwd: files sss\n", False),
        ("passwd: ldap [NOTFOUND=return] files\n", False),
        ("passwd: compat\n", False),  # its file may send on to NIS
        ("passwd: winbind\n", False),
        ("# nothing\n", True),
        ("", True),
    ],
)
def test_accounts_are_local_where_no_directory_is_asked(tmp_path, text, local):
    file = tmp_path / "nsswitch.conf"
    file.write_text(text)
    accounts = Accounts(nsswitch=str(file))
    accounts.begin(0.0)
    assert accounts.are_local() == local
    file.write_text("passwd: sss\n")
    accounts.begin(61.0)
    assert not accounts.are_local()


def test_sources_that_can_not_be_read_are_not_called_local(tmp_path):
    assert not Accounts(nsswitch=str(tmp_path)).are_local()
    assert Accounts(nsswitch=str(tmp_path / "none")).are_local()
