"""A log directory: the folders of its logs, its checkpoints, and whether it was closed cleanly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_values import ProducerSettings
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine


class LogDirectory:
    """A directory of logs that this process alone has open (Kafka's ``.lock``).

    A context manager: leaving it closes the logs, writes the checkpoints and, last, ``.kafka_cleanshutdown``.

    Thread safety: any number of threads.
    """

    @classmethod
    def open(
        cls,
        path: str,
        *,
        machine: Machine | None = None,
        config: LogConfig | None = None,
        producer_settings: ProducerSettings | None = None,
        remote_log_enabled: bool = False,
        is_sole_replica: bool = True,
    ) -> Self:
        """Lock the directory, made if it does not exist, and read its checkpoints. Logs are loaded by ``log``.

        Raises:
            StoreUnavailableError: another process has it. ConfigError: meta.properties is malformed. StoreError.
        """
        raise NotImplementedError

    def log(
        self, topic: str, partition: int, *, config: LogConfig | None = None, topic_id: bytes | None = None
    ) -> UnifiedLog:
        """The log of a partition, loaded or made by the first call."""
        raise NotImplementedError

    @property
    def logs(self) -> Mapping[tuple[str, int], UnifiedLog]:
        """Those that are open."""
        raise NotImplementedError

    def checkpoint(self) -> None:
        """Write the recovery points, log starts and high watermarks of the logs."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the logs and the directory; idempotent. Where a log is offline, the directory is left unclean."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
