"""What a coordinator counts."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from tierlog.broker.seconds_histogram import SecondsHistogram


@dataclass(slots=True)
class GroupCounts:
    """Counted on the loop's thread; any thread may read.

    Attributes:
        rebalances: That began.
        members_lost: Removed, as nothing was heard of them.
        commit_seconds: From a commit to its answer, of those that are durable.
        commits_refused: Of those that are not, by the error that answered them.
    """

    rebalances: int = 0
    members_lost: int = 0
    commit_seconds: SecondsHistogram = field(default_factory=SecondsHistogram)
    commits_refused: collections.Counter[str] = field(default_factory=collections.Counter)

    def count_commit(self, error: ErrorCode, seconds: float) -> None:
        """Count a commit that is answered."""
        if error is ErrorCode.none:
            self.commit_seconds.observe(seconds)
        else:
            self.commits_refused[error.name.upper()] += 1
