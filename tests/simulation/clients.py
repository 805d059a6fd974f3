"""All clients of a run, as its settings have them."""

from __future__ import annotations

from tests.simulation.admin import Admin
from tests.simulation.client import Client, Network
from tests.simulation.consumers import Consumer, Lookups
from tests.simulation.facts import Judge
from tests.simulation.producers import Producer
from tests.simulation.settings import Settings
from tests.simulation.transactions import TransactionalProducer


class Clients:
    """The clients of a run.

    Attributes:
        writers: What sends records.
        readers: Consumers, which read on when the writers have stopped.
        admin: Does what the nemesis says.
    """

    def __init__(self, settings: Settings, network: Network, judge: Judge) -> None:
        counts = settings.clients
        all_topics = tuple(topic.name for topic in settings.topics)
        compacted = tuple(topic.name for topic in settings.topics if topic.is_compacted)
        others = tuple(name for name in all_topics if name not in compacted)
        shared = settings, network, judge
        plain: list[Client] = [
            Producer(f"plain-{at}", *shared, topics=others, is_idempotent=False) for at in range(counts.plain_producers)
        ]
        idempotent = [
            Producer(f"idempotent-{at}", *shared, topics=others, is_idempotent=True)
            for at in range(counts.idempotent_producers)
        ]
        compacting = [
            Producer(f"compacting-{at}", *shared, topics=compacted, is_idempotent=True, is_keyed=True)
            for at in range(counts.compacting_producers)
            if compacted
        ]
        transactional = [
            TransactionalProducer(f"transactional-{at}", *shared, topics=others)
            for at in range(counts.transactional_producers)
        ]
        transactional += [
            TransactionalProducer(f"compacting-transactional-{at}", *shared, topics=compacted, is_keyed=True)
            for at in range(counts.compacting_transactional_producers)
            if compacted
        ]
        self.writers: list[Client] = [*plain, *idempotent, *compacting, *transactional]
        self.readers: list[Client] = [
            Consumer(
                f"{'committed-' if is_committed else ''}consumer-{at}",
                *shared,
                topics=all_topics,
                is_committed=is_committed,
            )
            for is_committed, count in ((False, counts.consumers), (True, counts.committed_consumers))
            for at in range(count)
        ]
        self._lookups = [Lookups(f"lookups-{at}", *shared, topics=all_topics) for at in range(counts.lookups)]
        self.admin = Admin("admin", *shared)

    def start(self) -> None:
        """Let all begin."""
        for client in (*self.writers, *self.readers, *self._lookups, self.admin):
            client.start()

    def stop_writing(self) -> None:
        """Let the writers end what they have begun; ``is_idle`` says when they have."""
        for client in (*self.writers, *self._lookups):
            client.stop()

    @property
    def is_idle(self) -> bool:
        return self.admin.is_idle and all(client.is_idle for client in self.writers)
