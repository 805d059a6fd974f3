"""Log start offsets as people write them: what lies below is deleted, which a bucket alone cannot show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tierlog.errors import ConfigError
from tierlog.remote.tier.tier import StoredTopic

_OFFSET_MAX: Final = 2**63 - 2


def parse_log_starts(values: Iterable[str], topics: Iterable[StoredTopic]) -> Mapping[str, Mapping[int, int]]:
    """``--log-start OFFSET`` for all partitions of the topics, or ``PARTITION:OFFSET`` for one; later ones win.

    Raises:
        ConfigError: malformed.
    """
    everywhere: int | None = None
    single: dict[int, int] = {}
    for value in values:
        match = re.fullmatch(r"(?:([0-9]{1,10}):)?([0-9]{1,19})", value)
        if match is None or int(match[2]) > _OFFSET_MAX:
            raise ConfigError(f"--log-start {value!r}: expected OFFSET or PARTITION:OFFSET")
        if match[1] is None:
            everywhere = int(match[2])
        else:
            single[int(match[1])] = int(match[2])
    if everywhere is None and not single:
        return {}
    starts: dict[str, dict[int, int]] = {}
    for stored in topics:
        known = {partition: everywhere for partition in stored.partitions if everywhere is not None}
        starts[stored.name] = starts.get(stored.name, {}) | known | single
    return starts
