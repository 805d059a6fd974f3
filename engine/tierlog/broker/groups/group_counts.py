"""Rebalances, lost members and commits of a group coordinator, counted."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from tierlog.serving.metrics import SecondsHistogram


@dataclass(slots=True)
class GroupCounts:
    """Events of one coordinator since its start. Counted on the loop's thread; any thread may read.

    Attributes:
        rebalances: Rebalances that began.
        members_lost: Members that were removed, as their session ran out.
        commit_seconds: Durations from a commit's request to its answer, of commits that are durable.
        commits_refused: Commits that were answered with an error, by the error's name.
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
