"""The look-up of a follower: the last offset of its log that is in the tier.

Its local retention deletes only what is there, and a follower that leads next goes on from there.

Source: Kafka RemoteLogManager.RLMFollowerTask.
"""

from __future__ import annotations

import logging

from tierlog.remote.manager.task_faults import is_passing
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_partition import TieredPartition
from tierlog.runtime.machine.cancelling import cancelled_by

_log = logging.getLogger(__name__)


class FollowerLookups:
    """The task of the partitions that this broker follows. A run is one look-up.

    Args:
        services: What the manager works with.

    Thread safety: any number of threads, for one partition one at a time.
    """

    def __init__(self, services: TierServices) -> None:
        self._services = services

    def run(self, partition: TieredPartition) -> float | None:
        """Look up what is copied, and tell the log; seconds until the next time, None: the term has ended."""
        services = self._services
        interval = services.config.task_interval_ms / 1000
        if partition.has_ended:
            return None
        log = services.find_log(partition.topic_id_partition)
        if log is None or not log.remote_log_enabled():
            return interval
        try:
            with cancelled_by(partition.scope):
                partition.offsets.look_up_copied(services, log)
        except Exception as error:  # noqa: BLE001 - whatever it is, the schedule goes on
            if not partition.scope.cancelled:
                level = logging.DEBUG if is_passing(error) else logging.WARNING
                _log.log(level, "%s: its copied offset is not known: %s", partition.topic_id_partition, error)
            return partition.following.note(error, services.config, services.machine.rng)
        partition.following.clear()
        return None if partition.scope.cancelled else interval
