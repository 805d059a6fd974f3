"""Whom a store that stalls holds up."""

from __future__ import annotations

import asyncio
import pathlib
import threading

import pytest

from tests.support.buckets import Bucket
from tests.support.catalogs import NEVER_SECONDS, history_of, opened_catalog, segment, spans_of
from tests.support.loops import run_on
from tests.support.waiting import until
from tierlog.broker.replica.catalog.bucket_catalog import CatalogSettings
from tierlog.broker.replica.catalog.resolution_queue import STALLED_MAX, THREADS
from tierlog.errors import StoreUnavailableError
from tierlog.runtime.machine.cancelling import ended_by_scopes, require_wanted
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

CROWD = THREADS + 4


class _Stalling(PassingStore):
    """A store that answers nothing of one topic until it is told to; its requests can be cancelled."""

    is_local = False  # type: ignore[assignment]

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.answers = threading.Event()
        self._lock = threading.Lock()
        self.stalled: set[threading.Thread] = set()

    def fetch(self, key: str) -> bytes:
        if key.startswith("crowd-") and not self.answers.is_set():
            self._stall()
        return bytes(self.inner.fetch(key))

    def _stall(self) -> None:
        ended = threading.Event()
        with self._lock:
            self.stalled.add(threading.current_thread())
        with ended_by_scopes(ended.set):
            while not (ended.is_set() or self.answers.wait(0.02)):
                pass
        with self._lock:
            self.stalled.discard(threading.current_thread())
        require_wanted()


class _Stallings:
    """Makes a stalling store of a tier, and keeps it for the test."""

    store: _Stalling

    def __call__(self, store: ObjectStore) -> _Stalling:
        self.store = _Stalling(store)
        return self.store


def crowd_of(root: pathlib.Path, *orders: int) -> None:
    """More partitions whose objects will stall than there are threads, of several segments each; and sound ones."""
    for partition in range(CROWD):
        crowd = Bucket(root, "crowd", partition)
        for first in (0, 2, 4):
            segment(crowd, first)
    for partition in orders:
        segment(Bucket(root, partition=partition), 0)


def test_partitions_that_stall_hold_up_no_other(tmp_path: pathlib.Path) -> None:
    """One slow prefix of a bucket would take all topics from all clients."""
    crowd_of(tmp_path, 0, 1)
    made = _Stallings()

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=made) as catalog:
            crowd = [asyncio.ensure_future(history_of(catalog, "crowd", number).resolve()) for number in range(CROWD)]
            orders = await asyncio.wait_for(history_of(catalog, "orders").resolve(), 15)
            assert spans_of(orders) == [(0, 2)]
            assert not any(each.done() for each in crowd)
            await until(lambda: len(made.store.stalled) == STALLED_MAX)  # all have been tried once
            await asyncio.wait_for(history_of(catalog, "orders", 1).resolve(), 15)
            assert len(made.store.stalled) == STALLED_MAX
            made.store.answers.set()
            for history in await asyncio.wait_for(asyncio.gather(*crowd), 15):
                assert spans_of(history) == [(0, 2), (2, 4), (4, 6)]

    run_on("uvloop", main)


def test_a_store_that_does_not_answer_is_an_error_in_time(tmp_path: pathlib.Path) -> None:
    """A client would wait for ever, and its partition hold a thread for as long."""
    crowd_of(tmp_path, 0)
    made = _Stallings()
    settings = CatalogSettings(refresh_seconds=NEVER_SECONDS, segments_ahead_max=0, request_seconds=1.5)

    async def main() -> None:
        async with opened_catalog(tmp_path, settings, wrap_store=made) as catalog:
            history = history_of(catalog, "crowd")
            began = asyncio.get_running_loop().time()
            with pytest.raises(StoreUnavailableError, match=r"crowd-0.* not answered for 1\.5 s"):
                await history.resolve()
            assert asyncio.get_running_loop().time() - began < 10
            with pytest.raises(StoreUnavailableError, match=r"not answered"):  # without a request
                await asyncio.wait_for(history.resolve(), 0.3)
            made.store.answers.set()
            resolved = []

            async def resolve() -> None:
                while not resolved:
                    try:
                        resolved.append(await history.resolve())
                    except StoreUnavailableError:
                        await asyncio.sleep(0.05)

            await asyncio.wait_for(resolve(), 15)
            assert spans_of(resolved[0]) == [(0, 2), (2, 4), (4, 6)]

    run_on("uvloop", main)
