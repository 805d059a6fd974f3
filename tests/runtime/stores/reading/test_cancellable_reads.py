"""Reads of a bucket that another thread ends."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.servers import StoreServer
from tests.support.waiting import ENDLESS_STORE, LIMIT_SECONDS, ends
from tierlog.errors import ObjectNotFoundError
from tierlog.remote.config import read_storage_config
from tierlog.remote.tier.configured_store import open_configured_store
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledReadError, CancelScope, cancelled_by
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import open_store

pytestmark = pytest.mark.server

BODY = bytes(range(256)) * 400
READS: dict[str, Callable[[ObjectStore, str], object]] = {
    "fetch": lambda store, key: bytes(store.fetch(key)),
    "fetch_range": lambda store, key: bytes(store.fetch_range(key, start_position=7, end_position_exclusive=999)),
    "find": lambda store, key: store.find(key),
    "list": lambda store, key: [found.key for found in store.iter_objects(key)],
    "list_folder": lambda store, _: len(store.list_folder().objects),
}


@dataclass
class Stalling:
    proxy: FaultProxy
    store: ObjectStore


@pytest.fixture
def stalling(s3: StoreServer) -> Iterator[Stalling]:
    url = f"{s3.url}/cancelled/{uuid.uuid4()}"
    with FaultProxy.before(s3) as proxy:
        store = open_store(
            url, {**s3.options, "store.endpoint": proxy.endpoint, "store.max_retries": "0"} | ENDLESS_STORE
        )
        store.put("k", BODY)
        yield Stalling(proxy, store)
        store.close()


def scope() -> CancelScope:
    return CancelScope(ThreadScheduler())


@pytest.mark.parametrize("read", READS)
def test_what_can_be_cancelled_reads_the_same(stalling: Stalling, read: str) -> None:
    """If this fails, a read that can be ended gives other bytes, or other errors, than one that cannot."""
    plain = READS[read](stalling.store, "k")
    with cancelled_by(scope()):
        assert READS[read](stalling.store, "k") == plain
        if not read.startswith("fetch"):
            assert stalling.store.find("none") is None
            assert list(stalling.store.iter_objects("none")) == []
            return
        with pytest.raises(ObjectNotFoundError, match="none: not found"):
            READS[read](stalling.store, "none")


def test_a_range_behind_the_end_is_still_a_short_answer(stalling: Stalling) -> None:
    """If this fails, a truncated object looks like a broken store to whoever can be cancelled."""
    with cancelled_by(scope()):
        found = stalling.store.fetch_range("k", start_position=len(BODY), end_position_exclusive=len(BODY) + 5)
    assert bytes(found) == b""


@pytest.mark.parametrize("read", READS)
def test_cancelling_closes_the_connection(stalling: Stalling, read: str) -> None:
    """If this fails, a stalled server holds a connection and a thread for a read that nobody waits for."""
    rule = stalling.proxy.add("stall", times=None)
    one = scope()

    def work() -> None:
        with cancelled_by(scope()), cancelled_by(one), pytest.raises(CancelledReadError):
            READS[read](stalling.store, "k")

    thread = threading.Thread(target=work)
    thread.start()
    stalling.proxy.wait_for(2)
    assert one.running == 1
    one.cancel()
    thread.join(LIMIT_SECONDS)
    assert not thread.is_alive()
    rule.wait_left(1)
    assert one.running == 0


def test_keys_of_a_source_in_python(stalling: Stalling, s3: StoreServer, tmp_path: pathlib.Path) -> None:
    """If this fails, a broker whose keys come from a file, a role or a container cannot fetch."""
    file = tmp_path / "keys.properties"
    names = {"aws.access.key.id": "store.access_key_id", "aws.secret.access.key": "store.secret_access_key"}
    file.write_text("".join(f"{name}={s3.options[option]}\n" for name, option in names.items()))
    options = {key: value for key, value in s3.options.items() if key not in names.values()}
    config = read_storage_config({**options, "storage.aws.credentials.file": str(file)})
    store = open_configured_store(stalling.store.describe(), config, machine=Machine())
    with cancelled_by(scope()):
        assert bytes(store.fetch("k")) == BODY
    store.close()


def test_a_cancelled_scope_sends_nothing(stalling: Stalling) -> None:
    """If this fails, a closed reader goes on asking the store."""
    one = scope()
    one.cancel()
    seen = len(stalling.proxy.seen)
    with cancelled_by(one), pytest.raises(CancelledReadError):
        stalling.store.fetch("k")
    assert len(stalling.proxy.seen) == seen
    assert bytes(stalling.store.fetch("k")) == BODY


def test_a_loop_that_runs_here_is_left_alone(stalling: Stalling) -> None:
    """If this fails, a notebook's own loop is gone after a read."""

    async def within() -> bytes:
        with cancelled_by(scope()):
            found = bytes(stalling.store.fetch("k"))
        await asyncio.sleep(0)
        assert asyncio.get_running_loop().is_running()
        return found

    assert asyncio.run(within()) == BODY


@pytest.mark.parametrize("read", READS)
def test_an_interrupt_ends_the_read(stalling: Stalling, read: str) -> None:
    """If this fails, Ctrl-C waits until a stalled store times out, or until all tries are used up."""
    rule = stalling.proxy.add("stall", times=None)

    main = threading.main_thread().ident

    def interrupt() -> None:
        stalling.proxy.wait_for(2)
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with ends(), pytest.raises(KeyboardInterrupt):
        READS[read](stalling.store, "k")
    thread.join()
    rule.wait_left(1)
