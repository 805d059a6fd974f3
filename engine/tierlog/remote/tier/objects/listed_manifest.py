"""What a listing has to know of a segment out of its manifest, where that is written as the plugin writes it.

A listing of a million manifests needs the metadata in them, and of segments that are stored as they are the few numbers
that describe them whole, so that a plan reads no manifest again. One pattern finds both in a manifest that has the
plugin's members in its order, without white space; of any other, and of one whose numbers no segment has, the answer
is None, and ``parse_manifest`` reads it, or says what is wrong.

Source: docs/formats/objects.md, Manifest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from typing_extensions import Buffer

from tierlog.remote.tier.objects.manifest import MANIFEST_BYTES_MAX

_INT32_MAX: Final = 2**31 - 1
_N: Final = r"(0|[1-9][0-9]{0,9})"
_L: Final = r"(0|[1-9][0-9]{0,17})"
_UNNAMED: Final = r"(?:0|[1-9][0-9]{0,9})"
_PLACE: Final = rf'\{{"position":{_N},"size":{_N}\}}'
_TIME: Final = r"(-1|0|[1-9][0-9]{0,17})"
_ID: Final = r"([A-Za-z0-9_-]{21}[AQgw])"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_MANIFEST: Final = re.compile(
    (
        r'\{"version":"1","chunkIndex":\{"type":"(fixed|variable)",'
        rf'"originalChunkSize":{_N},"originalFileSize":{_N},'
        rf'(?:"transformedChunkSize":{_N},"finalTransformedChunkSize":{_N}'
        rf'|"transformedChunks":"{_BASE64}")\}},'
        rf'"segmentIndexes":\{{"offset":{_PLACE},"timestamp":{_PLACE},"producerSnapshot":{_PLACE},'
        rf'"leaderEpoch":{_PLACE},"transaction":(?:null|{_PLACE})\}},"compression":(true|false),'
        rf'("encryption":\{{"dataKey":"[A-Za-z0-9._-]+:{_BASE64}","aad":"{_BASE64}"\}},)?'
        rf'"remoteLogSegmentMetadata":\{{"remoteLogSegmentId":\{{"topicIdPartition":\{{"topicId":"{_ID}",'
        rf'"topicPartition":\{{"topic":"([A-Za-z0-9._-]{{1,249}})","partition":{_N}\}}\}},"id":"{_ID}"\}},'
        rf'"startOffset":{_L},"endOffset":{_L},"maxTimestampMs":{_TIME},"brokerId":{_N},"eventTimestampMs":{_TIME},'
        rf'"segmentLeaderEpochs":\{{((?:"{_UNNAMED}":(?:0|[1-9][0-9]{{0,17}}),?)+)\}}'
        r'(?:,"txnIdxEmpty":(true|false))?\}\}'
    ).encode("ascii")
)
#: Groups in front of the metadata's.
_DESCRIBING: Final = 17
_EPOCH: Final = re.compile(rf'"{_N}":{_L}(?:,|$)'.encode("ascii"))


#: The description of a segment that is stored as it is, its indexes one after another in the order of
#: ``manifest.INDEX_MEMBERS``: the size of a chunk, and that of each index; -1 where there is no transaction index.
PlainNumbers = tuple[int, tuple[int, ...]]


class ListedManifest(NamedTuple):
    """The metadata of a segment, as plain values.

    Attributes:
        segment_path: ``<topic>-<id>/<partition>/<offset20>-<segment id>``: its key, if it is that of this segment.
        segment_id: Its text.
        leader_epochs: Ascending: (epoch, first offset in this segment), at least one.
        plain: What describes its objects; None where that is more than a few numbers, or none that a segment has.
    """

    segment_path: str
    segment_id: str
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    size_bytes: int
    broker_id: int
    leader_epochs: tuple[tuple[int, int], ...]
    txn_idx_empty: bool
    plain: PlainNumbers | None


def find_listed(data: Buffer) -> ListedManifest | None:
    """Find the metadata of a manifest; None where the whole parser has to be asked."""
    view = memoryview(data)
    found = None if view.nbytes > MANIFEST_BYTES_MAX else _MANIFEST.fullmatch(view)
    if found is None:
        return None
    values = found.groups()
    kind, chunk, size, transformed, final, *places, compressed, encrypted = values[:_DESCRIBING]
    topic_id, topic, partition, segment_id, start, end, latest, broker, event, epochs, empty = values[_DESCRIBING:]
    leader_epochs = _leader_epochs(epochs)
    start_offset, end_offset = int(start), int(end)
    size_bytes, broker_id, number = int(size), int(broker), int(partition)
    if leader_epochs is None or end_offset < start_offset or max(size_bytes, broker_id, number) > _INT32_MAX:
        return None
    name = segment_id.decode("ascii")
    return ListedManifest(
        f"{topic.decode('ascii')}-{topic_id.decode('ascii')}/{number}/{start_offset:020d}-{name}",
        name,
        start_offset,
        end_offset,
        int(latest),
        int(event),
        size_bytes,
        broker_id,
        leader_epochs,
        empty == b"true",
        _plain_numbers(size_bytes, chunk, transformed, final, places)
        if kind == b"fixed" and compressed == b"false" and encrypted is None
        else None,
    )


def _plain_numbers(
    size_bytes: int, chunk: bytes, transformed: bytes, final: bytes, places: Sequence[bytes | None]
) -> PlainNumbers | None:
    """Return the numbers of a segment that is stored as it is; None where the whole parser would refuse them, or the
    indexes do not follow each other.
    """
    chunk_size = int(chunk)
    if chunk != transformed or not 0 < chunk_size <= _INT32_MAX or not size_bytes:
        return None
    if int(final) != (size_bytes - 1) % chunk_size + 1:
        return None
    position, sizes = 0, []
    for at in range(0, len(places), 2):
        start, size = places[at], places[at + 1]
        if start is None or size is None:
            sizes.append(-1)  # the last one alone may be missing
            continue
        if int(start) != position:
            return None
        sizes.append(int(size))
        position += sizes[-1]
    if position > _INT32_MAX:
        return None
    return chunk_size, tuple(sizes)


def _leader_epochs(text: bytes) -> tuple[tuple[int, int], ...] | None:
    """Return the epochs, ascending; None where two are the same, or one is none."""
    found = [(int(epoch), int(start)) for epoch, start in _EPOCH.findall(text)]
    if len(found) > 1:
        found.sort()
        if len({epoch for epoch, _ in found}) < len(found):
            return None
    return tuple(found) if found and found[-1][0] <= _INT32_MAX and not text.endswith(b",") else None
