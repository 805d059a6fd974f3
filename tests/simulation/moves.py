"""The moves of a broker's logs from one of its directories to another: its task fills the future logs, and puts each in
the place of the one that it follows, as Kafka's ReplicaAlterLogDirsThread does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.messages import Partition
from tierlog.log.local.log_errors import LogBusyError, LogClosedError, LogOfflineError
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.replication import LogMove

if TYPE_CHECKING:
    from tests.simulation.broker import Broker
    from tests.simulation.replica import Replica

_PAUSE_SECONDS: Final = 0.05
_STEP_BYTES: Final = 2_000


class Moves:
    """The moves of one life of a broker.

    Args:
        broker: It.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._moves: dict[Partition, tuple[UnifiedLog, UnifiedLog, LogMove]] = {}

    @property
    def are_over(self) -> bool:
        """Whether no log is on its way."""
        return not self._broker.directories.future_logs

    def begin(self, partition: Partition) -> None:
        """Begin to move a partition's log to the next directory; one that moves already is called off."""
        directories, replica = self._broker.directories, self._broker.replicas.get(partition)
        if replica is None or self._broker.is_stopping:
            return
        key = partition.topic, partition.number
        try:
            if directories.cancel_move(*key):
                self._broker.trace.count("moves called off")
                return
            paths = directories.paths
            at = paths.index(replica.log.parent_dir)
            directories.begin_move(*key, paths[(at + 1) % len(paths)])
        except (LogOfflineError, LogClosedError, LogBusyError):
            return

    def run(self) -> None:
        """Go on with all moves, those of an earlier life too, until the broker stops."""
        broker = self._broker
        while not broker.is_stopping:
            copied = 0
            for key, future in sorted(broker.directories.future_logs.items()):
                replica = next((each for at, each in broker.replicas.items() if at[:2] == key), None)
                if replica is not None:
                    copied += self._go_on(replica, future)
            if not copied:
                broker.clock.sleep(_PAUSE_SECONDS)

    def _go_on(self, replica: Replica, future: UnifiedLog) -> int:
        """The next piece of a move; bytes that were copied."""
        known = self._moves.get(replica.partition)
        if known is None or known[0] is not replica.log or known[1] is not future:
            known = self._moves[replica.partition] = replica.log, future, LogMove(replica.log, future)
        move = known[2]
        copied = move.step(self._broker.now_ms, max_bytes=_STEP_BYTES)
        if move.is_caught_up:
            with replica.acting():  # Kafka: in the partition's leaderIsrUpdateLock
                if move.is_caught_up:  # the current log may have been cut while this task waited
                    self._finish(replica)
        return copied

    def _finish(self, replica: Replica) -> None:
        try:
            log = self._broker.directories.finish_move(replica.partition.topic, replica.partition.number)
        except (LogOfflineError, LogClosedError, LogBusyError):
            return
        if log is not None:
            self._broker.trace.count("logs moved")
            self._broker.trace.note(self._broker.name, "moved", str(replica.partition), log.parent_dir)
            replica.log_moved(log)
