"""The segments of an earlier listing: manifests that are as they were are not read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.metadata.listed_spans import UNLISTED_FOOTER, ListedSpans
from tierlog.remote.tier.layouts.aiven import MANIFEST
from tierlog.remote.tier.layouts.listing import Candidate, ListedSegment
from tierlog.remote.tier.objects.listed_manifest import ListedManifest
from tierlog.remote.tier.objects.object_keys import FOOTER
from tierlog.scan.history import PartitionHistory
from tierlog.scan.spans import SpanColumns


class ListedBefore:
    """The segments of a plugin's bucket that an earlier listing has as columns.

    A segment's manifest is written once; only a rotation of its data key writes it again, and its time is another one
    then. What a listing keeps of it stays: its metadata, and the numbers that describe one that is stored as it is.

    Args:
        histories: As ``PinnedTierHistory`` gave them; those without columns are passed over.

    Thread safety: any number of threads.

    Memory: the places of one partition's segments.
    """

    def __init__(self, histories: Sequence[PartitionHistory]) -> None:
        self._columns: dict[TopicIdPartition, tuple[ListedSpans, SpanColumns | None]] = {}
        for history in histories:
            spans = history.lineage.spans
            if isinstance(spans, SpanColumns):
                self._columns[history.topic_id_partition] = spans.listed, spans
            elif isinstance(spans, ListedSpans):
                self._columns[history.topic_id_partition] = spans, None
        self._places: tuple[TopicIdPartition | None, Mapping[str, int]] = None, {}

    def __len__(self) -> int:
        return len(self._columns)

    def find(self, candidate: Candidate) -> ListedSegment | None:
        """Find a segment by what is listed of it now; None: its manifest has to be read."""
        found = self._columns.get(candidate.topic_id_partition)
        manifest = candidate.objects.get(MANIFEST)
        if found is None or manifest is None or found[0].origin.layout != "aiven":
            return None
        listed, columns = found
        name = str(candidate.segment_id)
        number = self._places_of(candidate.topic_id_partition, listed).get(name)
        if number is None or number in listed.custom:
            return None
        _, _, start, end, max_ms, event_ms, modified_ms, footer, segment_id, size, broker, epoch, empty = listed.rows[
            number
        ].tolist()
        partition, prefix = candidate.topic_id_partition, listed.origin.prefix
        path = f"{partition.topic}-{partition.topic_id}/{partition.partition}/{start:020d}-{name}"
        if manifest.key != f"{prefix}{path}.{MANIFEST}" or manifest.last_modified_ms != modified_ms:
            return None
        chunk_size, sizes = (0, ()) if columns is None or not len(columns.plain) else columns.plain[number].tolist()
        info = candidate.objects.get(FOOTER)
        unlisted = UNLISTED_FOOTER if footer == UNLISTED_FOOTER else None
        return ListedSegment(
            partition,
            prefix,
            Uuid(segment_id),
            ListedManifest(
                path,
                name,
                start,
                end,
                max_ms,
                event_ms,
                size,
                broker,
                ((epoch, start),) if epoch >= 0 else listed.epochs[number],
                empty,
                (chunk_size, tuple(sizes)) if chunk_size else None,
            ),
            last_modified_ms=modified_ms,
            footer_size=unlisted if info is None else info.size_bytes,
        )

    def _places_of(self, partition: TopicIdPartition, listed: ListedSpans) -> Mapping[str, int]:
        known, places = self._places
        if known != partition:
            ids = listed.rows["segment_id"].tolist()
            places = {str(Uuid(each)): number for number, each in enumerate(ids)}
            self._places = partition, places
        return places
