"""A store that accepts and never answers, from the first request or a later one: each command that asks it ends."""

from __future__ import annotations

import pathlib
import re
import time
import uuid
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.command import Outcome, Run
from tests.support.fault_proxy import FaultProxy
from tests.support.key_pairs import pairs
from tests.support.servers import StoreServer
from tierlog.runtime.stores.store_urls import open_store

pytestmark = pytest.mark.server

#: Of one request: two tries of so much, and a pause between them.
TIMEOUT_SECONDS: Final = 1.0
CALL_SECONDS: Final = 2 * TIMEOUT_SECONDS + 0.6
#: What the command itself may take on a busy machine.
SLACK_SECONDS: Final = 8.0
PLUGIN: Final = "io.aiven.kafka.tieredstorage.storage"


class Stalling:
    """A bucket with encrypted segments, behind a proxy that stalls from a given request on."""

    def __init__(self, server: StoreServer, proxy: FaultProxy, data: pathlib.Path, folder: pathlib.Path) -> None:
        self.proxy = proxy
        self.prefix = f"stalling/{uuid.uuid4()}/"
        self.path = f"{server.url}/{self.prefix}"
        own = {
            "storage.backend.class": f"{PLUGIN}.s3.S3Storage",
            "storage.s3.bucket.name": server.url.removeprefix("s3://"),
            "storage.s3.region": "us-east-1",
            "storage.s3.endpoint.url": proxy.endpoint,
            "storage.s3.path.style.access.enabled": "true",
            "storage.aws.access.key.id": server.options["store.access_key_id"],
            "storage.aws.secret.access.key": server.options["store.secret_access_key"],
            "storage.s3.multipart.upload.part.size": str(5 << 20),
            "chunk.size": "4194304",
            "store.timeout": f"{TIMEOUT_SECONDS * 1000:.0f}ms",
            "store.max_retries": "1",
        }
        keys = pairs(data, "k1", "k2", active="k2") | {f"rsm.config.{key}": value for key, value in own.items()}
        self.config = folder / "rsm.properties"
        self.config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        self.checked = folder / "checked.properties"
        self.checked.write_text(f"{self.config.read_text()}rsm.config.key.prefix={self.prefix}\n")
        self._store = open_store(self.path, server.options)
        self._root = data / "zstd-aes/objects"

    def fill(self, *, without: str = "") -> None:
        """Put the golden segments there, without the objects that are named so."""
        for file in self._root.rglob("*"):
            if file.is_file() and not (without and file.name.endswith(without)):
                self._store.put(str(file.relative_to(self._root)), file.read_bytes())

    def close(self) -> None:
        self._store.close()


@pytest.fixture
def stalling(s3: StoreServer, data: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Stalling]:
    with FaultProxy.before(s3) as proxy:
        made = Stalling(s3, proxy, data, tmp_path)
        yield made
        made.close()


def ended(tierlog: Run, stalling: Stalling, arguments: list[object], *, answered: int, calls: int) -> Outcome:
    """The command over a store that answers so many requests; it must end within so many calls that get no answer."""
    stalling.proxy.clear()
    stalling.proxy.seen.clear()
    stalling.proxy.add("stall", times=None, skip=answered)
    began = time.monotonic()
    outcome = tierlog(*arguments)
    took = time.monotonic() - began
    assert took < calls * CALL_SECONDS + SLACK_SECONDS, f"{took:.1f} s, {answered} requests were answered"
    return outcome


def told_plainly(text: str) -> bool:
    return re.search("no answer within|timed out|without a byte", text) is not None and "Traceback" not in text


@pytest.mark.few(2)
@pytest.mark.parametrize("answered", [0, 1, 5, 12])
def test_check_config(tierlog: Run, stalling: Stalling, answered: int) -> None:
    """If this fails, an operator looks at a check that waits for a dozen requests in turn, some fifteen minutes."""
    # The write alone; or the step and its undoing, and the removal with its look.
    outcome = ended(tierlog, stalling, ["check-config", "--config", stalling.checked], answered=answered, calls=4)
    assert outcome.code == 3
    assert told_plainly(outcome.text), outcome.text
    failed = [line.split()[1] for line in outcome.text.splitlines() if line.startswith("FAILED")]
    assert failed == ["write:"] if not answered else len(failed) == 2
    assert not answered or failed[1] == "delete:"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("apply", "answered"),
    [
        *((False, answered) for answered in (0, 4)),
        *((True, answered) for answered in (1, 2)),
        *(pytest.param(False, answered, marks=pytest.mark.more) for answered in (1, 2)),
        *(pytest.param(True, answered, marks=pytest.mark.more) for answered in (0, 4)),
    ],
)
def test_rewrap(tierlog: Run, stalling: Stalling, answered: int, apply: bool) -> None:
    """If this fails, a rotation over a store that hangs never says so."""
    stalling.fill()
    command: list[object] = ["rewrap", stalling.path, "--config", stalling.config]
    command += ["--apply", "--no-digests"] if apply else []
    outcome = ended(tierlog, stalling, command, answered=answered, calls=2)
    assert outcome.code == 3
    assert told_plainly(outcome.err), outcome.err


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("delete", "answered"),
    [
        *((False, 0), (True, 1), (True, 2), (True, 4)),
        *(pytest.param(delete, answered, marks=pytest.mark.more) for delete, answered in ((False, 1), (True, 0))),
    ],
    ids=str,
)
def test_orphans(tierlog: Run, stalling: Stalling, delete: bool, answered: int) -> None:
    """If this fails, a search through a store that hangs never says so."""
    stalling.fill(without=".rsm-manifest")
    command: list[object] = ["orphans", stalling.path, "--config", stalling.config, "--older-than", "0s"]
    command += ["--delete"] if delete else []
    # What writes to take the store's time removes it too.
    outcome = ended(tierlog, stalling, command, answered=answered, calls=3)
    assert outcome.code == 3
    assert told_plainly(outcome.err), outcome.err
