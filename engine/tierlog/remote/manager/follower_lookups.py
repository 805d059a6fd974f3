"""The look-up of a follower: the last offset of its log that is in the tier.

Its local retention deletes only what is there, and a follower that leads next goes on from there.

Source: Kafka RemoteLogManager.RLMFollowerTask.
"""

from __future__ import annotations

import logging

from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.remote.manager.task_faults import is_passing
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import find_copied_offset
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
        topic_id_partition, metadata = partition.topic_id_partition, services.metadata
        try:
            with cancelled_by(partition.scope):
                copied = find_copied_offset(
                    LeaderEpochs(log.leader_epoch_cache.epoch_with_offsets().items()),
                    lambda epoch: metadata.highest_offset_for_epoch(topic_id_partition, epoch),
                    log_end_offset=log.log_end_offset,
                )
                if partition.scope.cancelled:
                    return None
                log.update_highest_offset_in_remote_storage(copied.offset)
        except Exception as error:  # noqa: BLE001 - whatever it is, the schedule goes on
            if not partition.scope.cancelled:
                level = logging.DEBUG if is_passing(error) else logging.WARNING
                _log.log(level, "%s: what is in the tier is not known: %s", topic_id_partition, error)
            return partition.following.note(error, services.config, services.machine.rng)
        partition.copied = copied
        partition.following.clear()
        return interval
