"""What copies that died left behind, by a listing alone: segments of which not every object is there.

Pure: who lists, who owns what, and how old it must be before it is taken away is ``tierlog orphans``' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.storage.layouts.aiven import MANIFEST
from tierlog.remote.storage.layouts.kafka import DESCRIPTION
from tierlog.remote.storage.object_keys import PARSERS
from tierlog.runtime.object_store import ObjectInfo

#: Suffixes (see ObjectKey) of the objects that each whole segment has, by layout; the one that marks it whole first.
WHOLE: Final = {
    "aiven": (MANIFEST, "log", "indexes"),
    "kafka": (DESCRIPTION, "log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint"),
}


@dataclass(frozen=True, slots=True)
class UnfinishedSegment:
    """Objects of one segment that are no whole one.

    Args:
        objects: All that there are of it.
        missing: Suffixes of those that are not there.
    """

    topic_id_partition: TopicIdPartition
    segment_id: Uuid
    segment_path: str
    objects: tuple[ObjectInfo, ...]
    missing: tuple[str, ...]

    @property
    def seen_by_readers(self) -> bool:
        """The description is there, and something else is not: a deletion that began with the wrong end, or a request
        that landed after it.
        """
        return self.missing[0] not in (MANIFEST, DESCRIPTION)


def iter_unfinished(objects: Iterable[ObjectInfo], layout: str, *, key_prefix: str = "") -> Iterator[UnfinishedSegment]:
    """Segments that are not whole, by path.

    Args:
        objects: A listing, in any order; what is no object of the layout is passed over.
        layout: A key of WHOLE.
        key_prefix: In front of every key of the layout; other keys are passed over.

    Raises:
        ConfigError: a layout that is not written.
    """
    if layout not in WHOLE:
        raise ConfigError(f"layout {layout!r}: {' and '.join(WHOLE)} are written")
    found: dict[str, dict[str, ObjectInfo]] = {}
    about: dict[str, tuple[TopicIdPartition, Uuid]] = {}
    for info in objects:
        if not info.key.startswith(key_prefix):
            continue
        key = PARSERS[layout](info.key[len(key_prefix) :])
        if key is None or key.segment_id is None:
            continue
        path = key_prefix + key.segment_path
        found.setdefault(path, {})[key.suffix] = info
        about[path] = (key.topic_id_partition, key.segment_id)
    for path in sorted(found):
        missing = tuple(suffix for suffix in WHOLE[layout] if suffix not in found[path])
        if missing:
            yield UnfinishedSegment(*about[path], path, tuple(found[path].values()), missing)
