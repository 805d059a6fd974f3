"""Whom a store that stalls holds up."""

from __future__ import annotations

import asyncio
import pathlib
import threading

from tests.support.buckets import Bucket
from tests.support.catalogs import histories_of, opened_catalog, segment, spans_of
from tests.support.loops import run_on
from tierlog.runtime.machine.cancelling import ended_by_scopes, require_wanted
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

CROWD = 20


class _Stalling(PassingStore):
    """A store that answers nothing of one topic until it is told to; its requests can be cancelled."""

    is_local = False  # type: ignore[assignment]

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.answers = threading.Event()

    def fetch(self, key: str) -> bytes:
        if key.startswith("crowd-") and not self.answers.is_set():
            ended = threading.Event()
            with ended_by_scopes(ended.set):
                while not (ended.is_set() or self.answers.wait(0.02)):
                    pass
            require_wanted()
        return bytes(self.inner.fetch(key))


def test_partitions_that_stall_hold_up_no_other(tmp_path: pathlib.Path) -> None:
    """One slow prefix of a bucket would take all topics from all clients."""
    for partition in range(CROWD):
        crowd = Bucket(tmp_path, "crowd", partition)
        for first in (0, 2, 4):
            segment(crowd, first)
    segment(Bucket(tmp_path), 0)
    stores: list[_Stalling] = []

    def wrap(store: ObjectStore) -> _Stalling:
        stores.append(_Stalling(store))
        return stores[-1]

    async def main() -> None:
        async with opened_catalog(tmp_path, wrap_store=wrap) as catalog:
            crowd = [asyncio.ensure_future(histories_of(catalog, "crowd", number).resolve()) for number in range(CROWD)]
            orders = await asyncio.wait_for(histories_of(catalog, "orders").resolve(), 15)
            assert spans_of(orders) == [(0, 2)]
            assert not any(each.done() for each in crowd)
            stores[-1].answers.set()
            for history in await asyncio.wait_for(asyncio.gather(*crowd), 15):
                assert spans_of(history) == [(0, 2), (2, 4), (4, 6)]

    run_on("uvloop", main)
