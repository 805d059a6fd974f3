"""A tiered log whose copy task a test runs, and the calls of the managers that change something."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.support.tier_tasks import TaskTier, task_tier
from tierlog.remote.manager.segment_copies import SegmentCopies
from tierlog.runtime.waiting.byte_quota import ByteQuota

COPIED = ["add_remote_log_segment_metadata", "copy_log_segment_data", "COPY_SEGMENT_FINISHED"]
REMOVED = ["DELETE_SEGMENT_STARTED", "delete_log_segment_data", "DELETE_SEGMENT_FINISHED"]


class CopyingTier:
    """An TaskTier whose log is copied by the task.

    Attributes:
        others_wait: Whether other tasks wait for a thread.
    """

    def __init__(self, tier: TaskTier) -> None:
        self.tier = tier
        self.others_wait = False
        self.quota = ByteQuota(tier.machine, tier.services.config.copy_max_bytes_per_second)
        self.copies = SegmentCopies(tier.services, self.quota, lambda: self.others_wait)

    def run(self) -> float | None:
        return self.copies.run(self.tier.term)

    def settle(self) -> float | None:
        """Run the task until it has nothing to do at once."""
        for _ in range(200):
            pause = self.run()
            if pause is None or pause > 0:
                return pause
        raise AssertionError("the task finds no end")

    def changes(self) -> list[str]:
        """Return the calls of the managers that change something, and forget them."""
        names = []
        for name, subject in self.tier.calls:
            if name == "update_remote_log_segment_metadata":
                names.append(subject.state.name)
            elif name in (*COPIED, "delete_log_segment_data"):
                names.append(name)
        self.tier.calls.clear()
        return names


@contextlib.contextmanager
def copying_tier(seed: int = 1, *, manager: dict[str, str] | None = None, segments: int = 3) -> Iterator[CopyingTier]:
    with task_tier(seed, manager=manager) as tier:
        tier.append(segments=segments)
        yield CopyingTier(tier)
