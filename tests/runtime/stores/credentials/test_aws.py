"""Where credentials of S3 come from: the one source that is configured, and no other in its place."""

from __future__ import annotations

import http.server
import json
import logging
import pathlib
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from tierlog.errors import ConfigError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.credentials.aws import AwsKeys, choose_credentials
from tierlog.runtime.stores.s3.options import credential_provider

FILE = "/keys.properties"


@pytest.fixture(autouse=True)
def no_ambient_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none/credentials")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/none/config")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


class Metadata(http.server.BaseHTTPRequestHandler):
    """A container's credentials, as the agent of ECS and EKS gives them."""

    answers: ClassVar[list[tuple[int, dict[str, str]]]] = []

    def do_GET(self) -> None:
        status, answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/role"
    server.shutdown()
    thread.join()
    server.server_close()


def test_static_keys_win() -> None:
    """If this fails, keys that were given are not the ones that sign."""
    config = {"access_key_id": "a", "aws_secret_access_key": "b", "session_token": "c"}
    found = choose_credentials(config, Machine())
    assert found.keys() == AwsKeys("a", "b", "c")
    assert "b" not in repr(found.keys()).replace("'a'", "")
    with pytest.raises(ConfigError, match="together"):
        choose_credentials({"access_key_id": "a"}, Machine())


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, half an environment falls through to the role of the machine, silently."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "e")
    with pytest.raises(ConfigError, match="together"):
        choose_credentials({}, Machine())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert choose_credentials({}, Machine()).keys() == AwsKeys("e", "s")
    assert choose_credentials({}, Machine(), source="anonymous").keys() is None
    assert choose_credentials({"skip_signature": "true"}, Machine()).keys() is None
    with pytest.raises(ConfigError, match="unknown source"):
        choose_credentials({}, Machine(), source="com.example.Provider")


def test_a_file_is_read_again_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, keys that rotate need a restart of every broker, or a half-written file stops all copies."""
    files, clock = MemoryFiles(), ManualClock()
    machine = Machine(files=files, clock=clock)
    files.put(FILE, b"aws.access.key.id=one\naws.secret.access.key=1\n")
    found = choose_credentials({"access_key_id": "other", "secret_access_key": "x"}, machine, file=FILE)
    assert found.keys() == AwsKeys("one", "1")
    files.put(FILE, b"rsm.config.storage.aws.access.key.id=two\naws.secret.access.key=22\naws.session.token=t\n")
    assert found.keys() == AwsKeys("one", "1"), "asked the disk for every request"
    clock.advance(11)
    with caplog.at_level(logging.INFO):
        assert found.keys() == AwsKeys("two", "22", "t")
    assert "22" not in caplog.text
    files.put(FILE, b"aws.access.key.id=three\n")
    clock.advance(11)
    with caplog.at_level(logging.WARNING):
        assert found.keys() == AwsKeys("two", "22", "t")
    assert "stay in force" in caplog.text
    with pytest.raises(ConfigError, match="/none"):
        choose_credentials({}, machine, file="/none")


def test_a_container_and_its_renewal(metadata: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, pods have no rights, or lose them after some hours."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata)

    def role(key: str, hour: str) -> tuple[int, dict[str, str]]:
        return 200, {"AccessKeyId": key, "SecretAccessKey": "s", "Token": "t", "Expiration": f"{hour}:00:00Z"}

    Metadata.answers = [role("first", "2020-01-01T00"), role("second", "2199-01-01T00")]
    found = choose_credentials({}, Machine())
    assert "container" in found.name
    keys = found.keys()
    assert keys is not None
    assert keys.access_key_id == "second"
    give = credential_provider(found)
    assert give is not None
    assert give()["access_key_id"] == "second", "reading has another identity than writing"


def test_a_source_that_fails_is_an_error_and_no_other_takes_its_place(
    metadata: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a broker writes as somebody else than its operator meant, and nobody notices."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata)
    Metadata.answers = [(403, {"message": "no"})]
    found = choose_credentials({}, Machine())
    with pytest.raises((StorePermissionError, StoreUnavailableError), match="container"):
        found.keys()
    identity = {"web_identity_token_file": "/none/token", "role_arn": "arn:aws:iam::1:role/r"}
    found = choose_credentials(identity, Machine(), region="us-east-1")
    assert "web identity" in found.name
    with pytest.raises(StorePermissionError, match="web identity"):
        found.keys()
    with pytest.raises(ConfigError, match="role_arn"):
        choose_credentials({"web_identity_token_file": "/none/token"}, Machine())


def test_a_profile(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a user of the aws command line must type the keys again."""
    credentials = tmp_path / "credentials"
    credentials.write_text("[default]\naws_access_key_id = p\naws_secret_access_key = b%c\n[other]\nregion = x\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    found = choose_credentials({}, Machine())
    assert found.name == "the profile default"
    assert found.keys() == AwsKeys("p", "b%c")
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(StorePermissionError, match="the profile other gives none"):
        choose_credentials({}, Machine()).keys()
    monkeypatch.delenv("AWS_PROFILE")
    credentials.write_text("no section")
    with pytest.raises(ConfigError, match="configuration files"):
        choose_credentials({}, Machine())


def test_nothing_configured_is_the_machines_role() -> None:
    """If this fails, a role of the machine is taken before what was configured, or never."""
    found = choose_credentials({}, Machine())
    assert found.name == "the role of this machine"
    with pytest.raises((StorePermissionError, StoreUnavailableError), match="the role of this machine"):
        found.keys()
