"""What a seed draws: the cluster, its topics, its clients, and which faults it meets.

Plain and frozen, to JSON and back: a failing seed is shrunk by taking things out of its settings.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from tierlog.runtime.machine.randomness import SeededRng

Drawn = TypeVar("Drawn")
Texts = tuple[tuple[str, str], ...]

#: The kinds of faults that a seed may have. The first ones are of the network, then of brokers, of disks, of the
#: store, of time, of what administrators and coordinators do at a bad moment, and of moments that are chosen by what
#: the metadata topic gets.
FAULTS: Final = (
    "loss",
    "doubles",
    "delays",
    "partition",
    "one-way partition",
    "store cut",
    "metadata cut",
    "crash",
    "clean restart",
    "pause",
    "wipe",
    "disk failure",
    "local rot",
    "cache rot",
    "store failures",
    "store lost answers",
    "store slowness",
    "store late cancels",
    "store stale listings",
    "store short bodies",
    "store lifecycle",
    "clock jump",
    "clock drift",
    "unclean election",
    "leader change",
    "configuration change",
    "topic deletion",
    "record deletion",
    "late markers",
    "rolling settings",
    "isolated leader",
    "power cut",
    "trap",
    "coordinator failover",
    "stale copier",
    "stalls",
    "log move",
    "lost epochs",
)
#: Every seed with faults has these: its least numbers of crashes and of leader changes come from them.
ALWAYS: Final = ("crash", "leader change")
#: What a run of so many events with faults has to meet, by the names of the trace's counters.
LEAST_EVENTS: Final = 10_000
LEAST_NUMBERS: Final = {
    "acknowledged": 200,
    "tiered segments": 20,
    "leader changes": 5,
    "crashes": 3,
    "reads from followers": 20,
    "reads at random offsets": 5,
}
#: One of so many seeds has unclean elections, and may lose what is committed: it has them often.
_UNCLEAN_EVERY: Final = 200
_UNCLEAN_AT: Final = 29
#: Kinds with a chance of their own, and their rates: seeds that do not draw them mean what they meant without them.
_BY_THEMSELVES: Final = {"isolated leader": 0.2, "power cut": 0.6, "trap": 0.4, "coordinator failover": 0.3}
_WITH_THEIR_OWN_CHANCE: Final = {"stale copier": 0.02, "stalls": 0.25, "log move": 0.3, "lost epochs": 0.1}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic, as it is made.

    Attributes:
        replication: Number of replicas.
        config: Kafka's names and values as text.
    """

    name: str
    partitions: int
    replication: int
    config: Texts

    @property
    def is_compacted(self) -> bool:
        return "compact" in dict(self.config).get("cleanup.policy", "delete")

    @property
    def is_tiered(self) -> bool:
        return dict(self.config).get("remote.storage.enable") == "true"


@dataclass(frozen=True, slots=True)
class ClientCounts:
    """How many clients of each kind there are."""

    plain_producers: int = 0
    idempotent_producers: int = 1
    transactional_producers: int = 0
    compacting_producers: int = 0
    compacting_transactional_producers: int = 0
    consumers: int = 1
    committed_consumers: int = 0
    lookups: int = 0
    admins: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a run is decided by.

    Attributes:
        events: The run's length, until the faults stop.
        faults: Of FAULTS; empty: none.
        favoured: Of ``faults``: those that come as often as all others together.
        fault_interval_ms: The mean time between two faults.
        produce_interval_ms: The mean time between two sends of a producer.
        network_delay_ms: The usual delay of a message: least and most.
        log_directories: Of each broker: one, or two.
        broker_config: Of each broker: Kafka's names and values as text: log directory, cleaner, RemoteLogManager.
        storage_config: Of the storage manager, without its store, its keys and the paths of its caches.
        changed_config: Of ``broker_config``, as a rolling change of settings has it at a broker's next start.
        clock_skews_ms: By broker, from 1 on.
        transaction_version: 1, or 2: the producer's epoch rises with each transaction (KIP-890).
        first_producer_epoch: Of a transactional id: near its end, ids are exhausted.
        switch_rate: Of the scheduler.
    """

    seed: int
    events: int
    brokers: int
    metadata_partitions: int
    topics: tuple[TopicSettings, ...]
    clients: ClientCounts
    faults: tuple[str, ...]
    fault_interval_ms: int = 2_000
    produce_interval_ms: int = 150
    network_delay_ms: tuple[int, int] = (1, 5)
    session_timeout_ms: int = 3_000
    heartbeat_interval_ms: int = 500
    replica_lag_ms: int = 4_000
    fetch_max_wait_ms: int = 500
    log_directories: int = 1
    broker_config: Texts = ()
    changed_config: Texts = ()
    storage_config: Texts = ()
    clock_skews_ms: tuple[int, ...] = ()
    transaction_version: int = 2
    transaction_timeout_ms: int = 10_000
    first_producer_epoch: int = 0
    kafka_semantics: bool = False
    favoured: tuple[str, ...] = ()
    heals_majority_alone: bool = False
    switch_rate: float = 0.1

    @classmethod
    def draw(cls, seed: int, *, events: int = 10_000, also: Sequence[str] = ()) -> Settings:
        """Draw a seed's settings.

        Args:
            seed: Of the chance.
            events: Of the run.
            also: Kinds of faults that it has whatever it draws, if it has any, and favours.

        Raises:
            ValueError: one of them is unknown.
        """
        if not set(also) <= set(FAULTS):
            raise ValueError(f"no kinds of faults: {sorted(set(also) - set(FAULTS))}")
        return _Draw(seed, also).settings(events)

    def rng(self, part: str) -> SeededRng:
        """The chance of a part of the run: by its name, so that taking another part out changes nothing of it."""
        return SeededRng(self.seed << 32 | zlib.crc32(part.encode()))

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote."""
        given: dict[str, Any] = json.loads(text)
        given["topics"] = tuple(TopicSettings(**{**each, "config": _texts(each["config"])}) for each in given["topics"])
        given["clients"] = ClientCounts(**given["clients"])
        for name in ("broker_config", "changed_config", "storage_config"):
            given[name] = _texts(given[name])
        for name in ("faults", "favoured", "network_delay_ms", "clock_skews_ms"):
            given[name] = tuple(given[name])
        return cls(**given)

    def hastened(self, times: int) -> Settings:
        """The same with faults so many times as often: for short runs."""
        return self.replace(fault_interval_ms=max(20, self.fault_interval_ms // times))

    def replace(self, **changes: Any) -> Settings:
        """The same with other values."""
        return dataclasses.replace(self, **changes)


def _texts(pairs: Sequence[Sequence[str]]) -> Texts:
    return tuple((name, value) for name, value in pairs)


class _Draw:
    """The drawing of one seed's settings."""

    def __init__(self, seed: int, also: Sequence[str]) -> None:
        self.seed = seed
        self._also = also
        self._rng = SeededRng(seed << 32 | zlib.crc32(b"settings"))
        self._by_itself = SeededRng(seed << 32 | zlib.crc32(b"by itself"))
        self._is_unclean = False

    def one_of(self, *values: Drawn) -> Drawn:
        return values[self._rng.integer_below(len(values))]

    def happens(self, rate: float) -> bool:
        return self._rng.uniform(0, 1) < rate

    def between(self, low: int, high_inclusive: int) -> int:
        return low + self._rng.integer_below(high_inclusive - low + 1)

    def settings(self, events: int) -> Settings:
        faults = self._faults()
        brokers = self.one_of(3, 3, 3, 4, 5)
        flush_messages = "1" if self.happens(0.2) else None
        faults = self._with_more(faults, flush_messages)
        self._is_unclean = "unclean election" in faults and self.happens(0.3)
        topics = [self._tiered("orders", brokers, flush_messages)]
        if self.happens(0.5):
            topics.append(self._tiered("events", brokers, flush_messages))
        if self.happens(0.5):
            topics.append(self._compacted("accounts", brokers, flush_messages))
        if self.happens(0.3):
            topics.append(self._local("notes", brokers, flush_messages))
        return Settings(
            seed=self.seed,
            events=events,
            brokers=brokers,
            metadata_partitions=self.between(1, 3),
            topics=tuple(topics),
            clients=self._clients(topics),
            faults=faults,
            favoured=tuple(each for each in (*self._also, *self._unclean()) if each in faults),
            fault_interval_ms=self.one_of(300, 600, 1_200),
            produce_interval_ms=self.one_of(80, 150, 250),
            network_delay_ms=self.one_of((1, 2), (1, 10), (5, 40)),
            session_timeout_ms=self.one_of(1_500, 3_000),
            replica_lag_ms=self.one_of(2_000, 4_000),
            log_directories=2 if "log move" in faults else 1,
            broker_config=self._broker_config(),
            changed_config=self._broker_config(),
            storage_config=self._storage_config(),
            clock_skews_ms=tuple(self._rng.integer_below(2_001) - 1_000 if faults else 0 for _ in range(brokers)),
            transaction_version=self.one_of(1, 2, 2),
            transaction_timeout_ms=self.one_of(3_000, 10_000),
            first_producer_epoch=self.one_of(0, 0, 0, 32_760),
            heals_majority_alone=self.happens(0.2) if faults else False,
            switch_rate=self.one_of(0.02, 0.1, 0.3),
        )

    def _faults(self) -> tuple[str, ...]:
        """One in ten seeds has none; the others have a few kinds, or many. One in two hundred has unclean elections,
        and crashes that take the last copy of what is committed: it alone may lose records.
        """
        if self.seed % 10 == 0:
            return ()
        rate = self.one_of(0.1, 0.25, 0.5, 0.8)
        others = {*_BY_THEMSELVES, *_WITH_THEIR_OWN_CHANCE, "unclean election"}
        drawn = {kind for kind in FAULTS if kind not in others and (kind in ALWAYS or self.happens(rate))}
        return tuple(kind for kind in FAULTS if kind in {*drawn, *self._also, *self._unclean()})

    def _unclean(self) -> tuple[str, ...]:
        return ("unclean election",) if self.seed % _UNCLEAN_EVERY == _UNCLEAN_AT else ()

    def _with_more(self, faults: tuple[str, ...], flush_messages: str | None) -> tuple[str, ...]:
        """Add kinds that have a chance of their own. A power cut takes all brokers at once: where each record is synced
        before it is acknowledged, that may take nothing.
        """
        if not faults:
            return ()
        drawn = {kind for kind, rate in _BY_THEMSELVES.items() if self._happens_by_itself(rate)} | {*faults}
        for kind, rate in _WITH_THEIR_OWN_CHANCE.items():
            if SeededRng(self.seed << 32 | zlib.crc32(kind.encode())).uniform(0, 1) < rate:
                drawn.add(kind)
        if flush_messages != "1":
            drawn.discard("power cut")
        return tuple(kind for kind in FAULTS if kind in drawn)

    def _happens_by_itself(self, rate: float) -> bool:
        return self._by_itself.uniform(0, 1) < rate

    def _clients(self, topics: list[TopicSettings]) -> ClientCounts:
        is_compacting = any(each.is_compacted for each in topics)
        return ClientCounts(
            plain_producers=self.between(0, 1),
            idempotent_producers=self.between(1, 2),
            transactional_producers=self.between(0, 3),
            compacting_producers=self.between(1, 2) if is_compacting else 0,
            compacting_transactional_producers=int(is_compacting and self._happens_by_itself(0.5)),
            consumers=self.between(1, 2),
            committed_consumers=self.between(1, 2),
            lookups=self.between(0, 1),
            admins=1,
        )

    def _common(self, flush_messages: str | None) -> dict[str, str]:
        config = {
            "internal.segment.bytes": str(self.one_of(800, 1_500, 3_000)),
            "segment.ms": str(self.one_of(4_000, 10_000, 60_000)),
            "index.interval.bytes": str(self.one_of(1, 256, 4_096)),
            "min.insync.replicas": self.one_of("1", "2", "2", "2"),
            "file.delete.delay.ms": str(self.one_of(0, 500, 2_000)),
        }
        if flush_messages is not None:
            config["flush.messages"] = flush_messages
        if self._is_unclean:
            config["unclean.leader.election.enable"] = "true"
        return config

    def _tiered(self, name: str, brokers: int, flush_messages: str | None) -> TopicSettings:
        config = self._common(flush_messages)
        retention_ms = self.one_of(-1, 15_000, 40_000)
        retention_bytes = self.one_of(-1, 8_000, 20_000)
        local_ms = self.one_of(-2, 1_000, 5_000)
        local_bytes = self.one_of(-2, 0, 2_000)
        if self._unclean():  # so that the logs' ends soon lie in the tier alone
            local_ms, local_bytes = 1_000, 0
        config |= {
            "remote.storage.enable": "true",
            "retention.ms": str(retention_ms),
            "retention.bytes": str(retention_bytes),
            "local.retention.ms": str(local_ms),
            "local.retention.bytes": str(local_bytes),
        }
        return self._topic(name, brokers, config)

    def _compacted(self, name: str, brokers: int, flush_messages: str | None) -> TopicSettings:
        config = self._common(flush_messages)
        config |= {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": self.one_of("0.01", "0.2", "0.5"),
            "delete.retention.ms": str(self.one_of(0, 3_000, 20_000)),
            "min.compaction.lag.ms": str(self.one_of(0, 0, 2_000)),
            "max.compaction.lag.ms": str(self.one_of(5_000, 60_000)),
        }
        return self._topic(name, brokers, config)

    def _local(self, name: str, brokers: int, flush_messages: str | None) -> TopicSettings:
        config = self._common(flush_messages)
        config |= {
            "retention.ms": str(self.one_of(-1, 10_000)),
            "retention.bytes": str(self.one_of(-1, 10_000)),
        }
        return self._topic(name, brokers, config)

    def _topic(self, name: str, brokers: int, config: dict[str, str]) -> TopicSettings:
        replication = min(brokers, self.one_of(2, 3, 3, 3, 4))
        return TopicSettings(name, self.between(1, 3), replication, tuple(sorted(config.items())))

    def _broker_config(self) -> Texts:
        interval_ms = self.one_of(500, 1_000, 2_000)
        config = {
            "log.retention.check.interval.ms": str(self.one_of(500, 1_000, 2_000)),
            "log.initial.task.delay.ms": "300",
            "log.flush.offset.checkpoint.interval.ms": str(self.one_of(1_000, 5_000)),
            "log.flush.start.offset.checkpoint.interval.ms": str(self.one_of(1_000, 5_000)),
            "replica.high.watermark.checkpoint.interval.ms": str(self.one_of(500, 5_000)),
            "transaction.partition.verification.enable": "true",
            "producer.id.expiration.ms": str(self.one_of(30_000, 86_400_000)),
            "producer.id.expiration.check.interval.ms": "5000",
            "log.cleaner.backoff.ms": str(self.one_of(500, 2_000)),
            "log.cleaner.dedupe.buffer.size": str(2 << 20),
            "log.cleaner.io.buffer.size": str(1 << 12),
            "log.cleaner.io.max.bytes.per.second": self.one_of("1e308", "40000", "8000", "1500"),
            "remote.log.manager.task.interval.ms": str(interval_ms),
            "remote.log.manager.task.retry.backoff.ms": "200",
            "remote.log.manager.task.retry.backoff.max.ms": str(interval_ms),
            "remote.log.manager.copier.thread.pool.size": "2",
            "remote.log.manager.expiration.thread.pool.size": "2",
            # More than two clocks differ by, which begin up to 2 s apart and jump by up to 1.5 s.
            "remote.log.manager.unfinished.copy.retention.ms": str(self.one_of(6_000, 12_000)),
            "remote.log.reader.threads": "2",
            "remote.fetch.max.wait.ms": "500",
            "remote.partition.remover.task.interval.ms": "2000",
            "follower.fetch.last.tiered.offset.enable": self.one_of("true", "false"),
        }
        return tuple(sorted(config.items()))

    def _storage_config(self) -> Texts:
        config = {
            "chunk.size": str(self.one_of(256, 1_024, 65_536)),
            "compression.enabled": self.one_of("true", "false"),
            "encryption.enabled": self.one_of("true", "false"),
        }
        cache = self.one_of("disk", "memory", None)
        if cache is not None:
            config |= {"fetch.chunk.cache.class": cache, "fetch.chunk.cache.size": str(self.one_of(4_096, 1 << 20))}
        return tuple(sorted(config.items()))
