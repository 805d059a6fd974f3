"""Producers without transactions: plain ones, idempotent ones, and those that write to compacted topics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from tests.simulation.client import RETRY_MS, Chance, Client, Network
from tests.simulation.coordinator import NAME as COORDINATOR
from tests.simulation.facts import Judge
from tests.simulation.messages import InitProducerId, ProducerIdGiven
from tests.simulation.sender import Records, Sender
from tests.simulation.settings import Settings

_BACKLOG_MAX: Final = 12
_KEYS: Final = 12
_SELDOM_KEYS: Final = 200
_SELDOM_RATE: Final = 0.15
_TOMBSTONE_RATE: Final = 0.2
#: Of batches that no leader takes: larger than a segment, or without a key in a compacted topic.
_WRONG_RATE: Final = 0.01
_LARGE_BYTES: Final = 4_000


class Values:
    """The records of a producer: no value of a run occurs twice."""

    def __init__(self, name: str, chance: Chance) -> None:
        self._name = name
        self._chance = chance
        self._count = 0

    def _value(self) -> bytes:
        self._count += 1
        return b"%s#%d " % (self._name.encode(), self._count) + b"." * self._chance.below(80)

    def records(self) -> Records:
        """Draw the records of a batch; a few batches are larger than a segment may be, so that no leader takes them."""
        records = tuple((None, self._value()) for _ in range(self._chance.between(1, 4)))
        if self._chance.happens(_WRONG_RATE):
            name = records[0][1]
            parts = (hashlib.sha256(b"%s%d" % (name, at)).digest() for at in range(_LARGE_BYTES // 32))
            return ((None, name + b"".join(parts)), *records[1:])
        return records

    def keyed_values(self) -> Records:
        """Draw the records of a batch for a compacted topic, without tombstones."""
        return tuple((self._key(), self._value()) for _ in range(self._chance.between(1, 4)))

    def _key(self) -> bytes:
        """One of a few keys, or one that seldom comes again: the last value of that lies far behind the log's end."""
        few = self._chance.happens(1 - _SELDOM_RATE)
        return b"key-%d" % (self._chance.below(_KEYS) if few else _KEYS + self._chance.below(_SELDOM_KEYS))

    def keyed_records(self) -> Records:
        """Draw the records of a batch for a compacted topic: few keys, and tombstones; a few batches have a record
        without a key, so that no leader takes them.
        """
        if self._chance.happens(_WRONG_RATE):
            return ((b"key-0", self._value()), (None, self._value()))
        return tuple(
            (
                self._key(),
                None if self._chance.happens(_TOMBSTONE_RATE) else self._value(),
            )
            for _ in range(self._chance.between(1, 4))
        )


class Producer(Client):
    """A producer without transactions.

    Args:
        topics: That it writes to.
        is_idempotent: Else it is plain, and draws its acks.
        is_keyed: Its records are for compacted topics.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        network: Network,
        judge: Judge,
        *,
        topics: tuple[str, ...],
        is_idempotent: bool,
        is_keyed: bool = False,
    ) -> None:
        super().__init__(name, settings, network, judge)
        self._topics = topics
        self._is_idempotent = is_idempotent
        values = Values(name, self.chance)
        self._records: Callable[[], Records] = values.keyed_records if is_keyed else values.records
        acks = -1 if is_idempotent else self.chance.one_of((-1, 1, 1, 0))
        self._sender = Sender(self, name, acks=acks, is_idempotent=is_idempotent)

    @property
    def is_idle(self) -> bool:
        return self._sender.is_idle

    def begin(self) -> None:
        if self._is_idempotent:
            self.ask(COORDINATOR, InitProducerId(None), self._initialized)
        else:
            self._produce()

    def _initialized(self, answer: ProducerIdGiven | None) -> None:
        if answer is None or answer.error is not None:
            self.after(RETRY_MS, self.begin)
            return
        self._sender.begin_epoch(answer.producer_id, answer.producer_epoch)
        self._produce()

    def _produce(self) -> None:
        """Queue a batch, or a few, and come again."""
        if self.is_stopped:
            return
        self.known.refresh_at_times()
        partitions = self.known.partitions(self._topics)
        if partitions and self._sender.backlog < _BACKLOG_MAX:
            partition = self.chance.one_of(partitions)
            for _ in range(self.chance.one_of((1, 1, 1, 2, 4, 7))):
                self._sender.send(partition, self._records())
        self.after(self.chance.around(self.settings.produce_interval_ms), self._produce)
