"""Verification of transactions: no transactional batch is written that its coordinator does not know of.

Before a producer's first batch of a transaction the broker asks the coordinator whether the partition is part of it.
Meanwhile a marker may end the transaction, and the answer would come too late: the guard that was handed out with the
question has to be there still when the batch is appended.

Source: Kafka VerificationStateEntry, VerificationGuard; KIP-890.
"""

from __future__ import annotations

from typing import final


@final
class VerificationGuard:
    """One question to a coordinator: equal to itself alone. None is Kafka's sentinel, which verifies nothing."""

    __slots__ = ()


class VerificationStateEntry:
    """A producer whose next batch begins a transaction, once it is verified.

    Attributes:
        guard: What its append has to bring.
        created_ms: When the question was asked; entries of questions that nobody answered expire.
        supports_epoch_bump: The producer uses transactions of version 2.
        lowest_sequence: Of the batches that asked: none above is written before it, else the lower one would be out of
            order for ever.
    """

    __slots__ = ("created_ms", "guard", "lowest_sequence", "producer_epoch", "supports_epoch_bump")

    def __init__(self, *, created_ms: int, sequence: int, producer_epoch: int, supports_epoch_bump: bool) -> None:
        self.guard = VerificationGuard()
        self.created_ms = created_ms
        self.supports_epoch_bump = supports_epoch_bump
        self.lowest_sequence = sequence
        self.producer_epoch = producer_epoch

    def take(self, sequence: int, producer_epoch: int) -> None:
        """Another batch asks: the lowest sequence of the latest epoch counts."""
        if producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
