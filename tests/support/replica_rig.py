"""A bucket that changes, the replica that serves it, and the clients that follow all of it; checked at the end."""

from __future__ import annotations

import contextlib
import pathlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.support.bad_objects import key_config
from tests.support.changing_bucket import ChangingBucket, PublishedFolder, Said, TieredLog
from tests.support.fault_proxy import FaultProxy
from tests.support.following_clients import EPOCH_AWARE, Following, Place, following
from tests.support.replica_server import RunningReplica, replica
from tests.support.servers import StoreServer
from tierlog.runtime.stores.store_urls import open_store

#: How long records may still come that an election has cut off: until the bucket is listed and clients have asked.
_NEWS_SECONDS = 60.0
#: Clients that lose what they have fetched when an election has cut off a later part of it.
DROPS_FETCHED = ("librdkafka",)


def require_sound(client: Following, bucket: ChangingBucket, starts: dict[Place, int] | None = None) -> None:
    """Fails at the first record that the client should not have got, or not then."""
    for place in list(client.delivered):
        before: Said | None = None
        for number, each in enumerate(client.got(place)):
            said = Said.decode(each.value)
            where = f"{client.name}, {place}, delivery {number}: {said} behind {before}"
            log = bucket.by_id[said.topic_id, said.partition]
            assert (log.bucket.topic, said.partition, said.offset) == (*place, each.offset), where
            assert each.value == log.value(said.offset, said.epoch), where
            assert (said.offset, said.epoch) in log.ever, f"{where} is of a branch that never counted"
            if _is_dead(said, log):
                cut_at = max(at for offset, at in log.cuts if offset <= said.offset)
                assert each.at_seconds < cut_at + _NEWS_SECONDS, f"{where} was cut off long before"
            if before is None:
                assert said.offset in log.starts | {(starts or {}).get(place, 0)}, where
            elif said.topic_id != before.topic_id:
                ids = bucket.topic_ids[place[0]]
                assert ids.index(said.topic_id) > ids.index(before.topic_id), f"{where} is of a topic that is gone"
                assert said.offset in log.starts | {before.offset + 1}, where
            else:
                _require_step(before, said, log, where, drops_fetched=client.name in DROPS_FETCHED)
            before = said


def _require_step(before: Said, said: Said, log: TieredLog, where: str, *, drops_fetched: bool) -> None:
    if said.offset == before.offset + 1:
        assert said.epoch >= before.epoch, f"{where} is of an older branch"
    elif said.offset > before.offset:
        has_dropped = drops_fetched and said.epoch > before.epoch and said.offset in {cut for cut, _ in log.cuts}
        assert has_dropped or said.offset in log.starts, f"{where}: records were left out"
    else:
        assert _is_dead(before, log), f"{where}: records came twice"
        assert said.offset in log.starts | {offset for offset, _ in log.cuts}, f"{where}: it went back to nowhere"


def _is_dead(said: Said, log: TieredLog) -> bool:
    return log.live.get(said.offset) != said.epoch


def require_whole(client: Following, bucket: ChangingBucket) -> None:
    """Fails unless the client stands at the end of every log, and has what counts if it can know of elections."""
    for place, log in bucket.logs.items():
        got = client.got(place)
        assert got, f"{client.name} has nothing of {place}"
        assert got[-1].offset + 1 == log.end_offset, f"{client.name} is not at the end of {place}"
        if client.name in EPOCH_AWARE:
            latest = {each.offset: Said.decode(each.value) for each in got}
            for said in latest.values():
                if said.topic_id == log.bucket.topic_id and log.start_offset <= said.offset < log.end_offset:
                    assert not _is_dead(said, log), f"{client.name} was left with {said}"


PATIENCE_SECONDS = 60.0
#: Of the server: it looks soon, and gives a store up soon.
CONFIG = {
    "fetch.chunk.cache.get.timeout.ms": "2000",
    "store.timeout": "3s",
    "store.max_retries": "2",
    "store.retry_timeout": "10s",
}
#: How long partitions without a trouble may take, beside those that have one.
GOES_ON_SECONDS = 15.0
#: The first partition is the one in trouble …
TOPICS = {"orders": 2, "payments": 1}
TROUBLED = ("orders", 0)
#: … or all of a topic that has more partitions than the server has threads.
CROWD = {"crowd": 24}


@dataclass
class Rig:
    """A bucket, the replica that serves it, and clients that follow all of it."""

    bucket: ChangingBucket
    server: RunningReplica
    clients: list[Following]
    topics: Mapping[str, int]
    keys: pathlib.Path
    proxy: FaultProxy | None = None

    @property
    def troubled(self) -> TieredLog:
        return self.bucket.logs[TROUBLED]

    def others(self) -> list[Place]:
        return [place for place in self.bucket.logs if place != TROUBLED and place[0] not in CROWD]

    def grow(self, places: Sequence[Place] | None = None) -> None:
        """One segment more of some partitions, of all by default."""
        for place in places or list(self.bucket.logs):
            self.bucket.logs[place].append()
        self.bucket.publish()

    def reach_ends(
        self,
        places: Sequence[Place] | None = None,
        *,
        clients: Sequence[Following] = (),
        seconds: float = PATIENCE_SECONDS,
        is_made_anew: bool = False,
    ) -> None:
        """Wait until the clients are at the ends of some partitions, of all by default.

        Where the topic was made anew librdkafka may stay where it was in a partition, without an error: its users have
        to assign that again (its issue 4898), and so does this after a while.
        """
        ends = {place: self.bucket.logs[place].end_offset for place in places or list(self.bucket.logs)}
        began = time.monotonic()

        def behind() -> list[tuple[Following, Place]]:
            asked = clients or self.clients
            return [(client, place) for client in asked for place, end in ends.items() if client.position(place) != end]

        while left := behind():
            passed = time.monotonic() - began
            if is_made_anew and passed > seconds / 3:
                is_made_anew = False
                for client, place in left:
                    if client.name == "librdkafka":
                        client.assigned_again.put(place)
            if passed > seconds:
                words = [
                    f"{client.name} {place}: {client.position(place)} of {ends[place]}, told {client.errors[-3:]}"
                    for client, place in left
                ]
                pytest.fail(f"{words}\n{self.server.log.read_text(errors='replace')[-4000:]}", pytrace=False)
            time.sleep(0.05)

    def others_go_on(self) -> None:
        """The partitions without a trouble grow, and are read."""
        self.grow(self.others())
        self.reach_ends(self.others(), seconds=GOES_ON_SECONDS)

    def require_held_at(self, end_offset: int) -> None:
        """No client has got what cannot be told yet."""
        for client in self.clients:
            assert client.position(TROUBLED) == end_offset, client.name

    @contextlib.contextmanager
    def late_clients(self, start_offset: int) -> Iterator[list[Following]]:
        """More clients, which begin somewhere in the partition in trouble."""
        names = [client.name for client in self.clients]
        starts = {TROUBLED: start_offset}
        with following(names, self.server.bootstrap, self.topics, starts=starts) as clients:
            yield clients
        for client in clients:
            require_sound(client, self.bucket, starts)
            require_whole(client, self.bucket)


@contextlib.contextmanager
def rig_of(
    folder: pathlib.Path,
    data: pathlib.Path,
    names: Sequence[str],
    s3: StoreServer | None = None,
    *,
    topics: Mapping[str, int] = TOPICS,
) -> Iterator[Rig]:
    """Everything runs until the block ends; then what the clients got is checked."""
    staging, served = folder / "staging", folder / "served"
    for each in (staging, served):
        each.mkdir()
    config = CONFIG | {f"rsm.config.{key}": value for key, value in key_config(data).items()}
    with contextlib.ExitStack() as stack:
        proxy = None
        url = str(served)
        options: dict[str, str] = {}
        if s3 is not None:
            url, options = f"{s3.url}/changes/{uuid.uuid4()}", dict(s3.options)
            proxy = stack.enter_context(FaultProxy.before(s3))
            config |= options | {"store.endpoint": proxy.endpoint}
        store = open_store(url, options)
        stack.callback(store.close)
        bucket = ChangingBucket(staging, PublishedFolder(store))
        for topic, partitions in topics.items():
            bucket.add(topic, partitions)
        bucket.publish()
        server = stack.enter_context(replica(url, folder, "--refresh", "0.1", "--layout", "aiven", config=config))
        clients = stack.enter_context(following(names, server.bootstrap, topics))
        rig = Rig(bucket, server, clients, topics, data, proxy)
        rig.reach_ends()
        yield rig
        for client in clients:
            require_sound(client, bucket)
            require_whole(client, bucket)
