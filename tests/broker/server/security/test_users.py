"""The file of users: its forms, what is refused, and what it tells of nobody."""

from __future__ import annotations

import base64
import functools
import logging
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.broker.server.security.users import ITERATIONS_MIN, Users, open_users, parse_users, salted
from tierlog.errors import ConfigError, StoreError
from tierlog.runtime.machine import Machine

MACHINE = Machine()
SECRET = bytes(32)
SALT = b"0123456789abcdef"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def rfc_5803(mechanism: str, password: str, iterations: int = 8192) -> str:
    found = salted(mechanism, password, SALT, iterations)
    keys = f"{encoded(found.stored_key)}:{encoded(found.server_key)}"
    return f"{mechanism}${iterations}:{encoded(SALT)}${keys}"


def kafka_form(mechanism: str, password: str) -> str:
    found = salted(mechanism, password, SALT, 4096)
    keys = f"stored_key={encoded(found.stored_key)},server_key={encoded(found.server_key)}"
    return f"{mechanism}=salt={encoded(SALT)},{keys},iterations=4096"


def test_the_vector_of_rfc_7677() -> None:
    """Keys that are derived otherwise fit no client, and no password works."""
    found = salted("SCRAM-SHA-256", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    assert encoded(found.stored_key) == "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert encoded(found.server_key) == "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_users_of_all_forms() -> None:
    """A user who was copied from Kafka or from another system must be able to log in."""
    text = "\n".join(
        (
            "# people",
            "",
            "alice:secret:with:colons",
            "bob:" + rfc_5803("SCRAM-SHA-256", "b"),
            "bob:" + rfc_5803("SCRAM-SHA-512", "b"),
            "carol:" + kafka_form("SCRAM-SHA-512", "c"),
            "dave:pässword\r",
        )
    )
    users = parse_users(text, "users", SECRET)
    assert len(users) == 4
    for name, password in (("alice", "secret:with:colons"), ("bob", "b"), ("carol", "c"), ("dave", "pässword")):
        assert users.is_password(name, password)
        assert not users.is_password(name, password + "x")
        assert not users.is_password(name, "")
    assert not users.is_password("nobody", "secret")
    bob = users.credential("bob", "SCRAM-SHA-256")
    assert (bob.iterations, bob.salt) == (8192, SALT)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("alice", "name:password"),
        (":secret", "name:password"),
        ("alice:", "name:password"),
        ("alice:SCRAM-SHA-1$4096:c2FsdA==$a:b", "mechanism"),
        ("alice:SCRAM-SHA-256$4096:c2FsdA==$a", "expected"),
        ("alice:SCRAM-SHA-256=salt=a,iterations=4096", "expected"),
        ("alice:" + rfc_5803("SCRAM-SHA-256", "b").replace("$8192", "$4095"), "iterations"),
        ("alice:" + rfc_5803("SCRAM-SHA-256", "b").replace("$8192", "$999999999"), "iterations"),
        ("alice:" + rfc_5803("SCRAM-SHA-256", "b").replace(encoded(SALT), "c2FsdA=="), "salt"),
        ("alice:" + rfc_5803("SCRAM-SHA-256", "b").replace(encoded(SALT), "c2FsdA"), "base 64"),
        ("alice:" + rfc_5803("SCRAM-SHA-256", "b").replace("-256", "-512"), "key"),
        ("alice:x\nalice:y", "already"),
    ],
)
def test_a_malformed_line_is_named_and_not_quoted(line: str, text: str) -> None:
    """A user who silently is none cannot log in, and nobody knows why; a quoted line puts a password into the log."""
    with pytest.raises(ConfigError, match=r"users:[12]: .*" + text) as caught:
        parse_users(line, "users", SECRET)
    assert "secret" not in str(caught.value)


def test_no_secret_is_shown_by_accident() -> None:
    """A trace or a log line that shows a user must not show what proves that somebody is one."""
    users = parse_users("alice:hunter22", "users", SECRET)
    credential = users.credential("alice", "SCRAM-SHA-256")
    assert encoded(credential.stored_key) not in repr(credential)
    assert "stored_key" not in repr(credential)
    assert "hunter22" not in repr(users.__dict__)


@functools.cache
def _two_users() -> Users:
    return parse_users("\n".join(("bob:" + rfc_5803("SCRAM-SHA-256", "b"), "carol:pass")), "users", SECRET)


@given(st.text(min_size=1))
def test_a_name_that_nobody_has_looks_like_one_that_somebody_has(name: str) -> None:
    """Otherwise anybody learns the names of users by asking for salts."""
    users = _two_users()
    real = [users.credential(each, "SCRAM-SHA-256") for each in ("bob", "carol")]
    found = users.credential(name, "SCRAM-SHA-256")
    assert found == users.credential(name, "SCRAM-SHA-256")
    if name not in ("bob", "carol"):
        assert (len(found.salt), found.iterations) in [(len(each.salt), each.iterations) for each in real]
        assert found.salt not in [each.salt for each in real]


def test_nobody_has_a_password_without_users() -> None:
    """An empty file must let nobody in."""
    users = parse_users("", "users", SECRET)
    assert not users.is_password("", "")
    assert users.credential("anybody", "SCRAM-SHA-512").iterations == ITERATIONS_MIN


def test_a_file_that_all_can_read_is_reported(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every user of the machine could read the passwords, and nobody would notice."""
    path = tmp_path / "users"
    path.write_text("alice:hunter22\n")
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert open_users(str(path), MACHINE).value.is_password("alice", "hunter22")
    assert "readable by every user" in caplog.text
    assert "hunter22" not in caplog.text


def test_a_file_that_is_read_again_changes_no_salt(tmp_path: pathlib.Path) -> None:
    """A client that asks for salts before and after a change would learn which names are real: those that kept or lost
    theirs.
    """
    path = tmp_path / "users"
    path.write_text("alice:hunter22\n")
    path.chmod(0o600)
    users = open_users(str(path), MACHINE)
    before = {name: users.value.credential(name, "SCRAM-SHA-256").salt for name in ("alice", "bob", "nobody")}
    path.write_text("alice:hunter23\nbob:new\n")
    assert users.reload()
    assert users.value.is_password("alice", "hunter23")
    assert users.value.is_password("bob", "new")
    assert {name: users.value.credential(name, "SCRAM-SHA-256").salt for name in before} == before


@pytest.mark.parametrize("text", ["", "# nobody yet\n", "alice\n", "alice:x\nbob"])
def test_a_broken_file_keeps_the_users(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """A slip while somebody edits the file must not lock out all users, and must not pass unnoticed."""
    path = tmp_path / "users"
    path.write_text("alice:hunter22\n")
    path.chmod(0o600)
    users = open_users(str(path), MACHINE)
    path.write_text(text)
    with caplog.at_level(logging.ERROR):
        assert not users.reload()
    assert f"event=users_kept path={path}" in caplog.text
    assert users.value.is_password("alice", "hunter22")
    path.unlink()
    assert not users.reload()
    assert users.value.is_password("alice", "hunter22")
    path.write_text("bob:hidden\n")
    path.chmod(0o600)
    assert users.reload()
    assert not users.value.is_password("alice", "hunter22")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: pathlib.Path) -> None:
    """A server that started without its users would refuse everybody."""
    with pytest.raises(StoreError):
        open_users(str(tmp_path / "absent"), MACHINE)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        open_users(str(tmp_path / "bytes"), MACHINE)
