"""The broker's settings about producers."""

from __future__ import annotations

from dataclasses import dataclass

from tierlog.arguments import require_flag, require_int64


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The broker's settings about producers.

    Args:
        producer_id_expiration_ms: ``producer.id.expiration.ms``.
        transaction_max_timeout_ms: ``transaction.max.timeout.ms``.
        transaction_partition_verification_enable: ``transaction.partition.verification.enable``.

    Raises:
        TypeError: a field is of another type. ValueError: a time that does not fit into 64 bits, or is not above 0.
    """

    producer_id_expiration_ms: int = 86_400_000
    transaction_max_timeout_ms: int = 900_000
    transaction_partition_verification_enable: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        require_int64("producer_id_expiration_ms", self.producer_id_expiration_ms, least=1)
        require_int64("transaction_max_timeout_ms", self.transaction_max_timeout_ms, least=1)
        require_flag("transaction_partition_verification_enable", self.transaction_partition_verification_enable)
