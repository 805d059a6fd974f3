"""What KIP-405's formatter prints of a metadata record."""

from __future__ import annotations

import re

import pytest

from tests.support.metadata_records import FINISHED, PARTITION, SEGMENT, SNAPSHOT
from tierlog.errors import ConfigError
from tierlog.remote.api import (
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)
from tierlog.remote.metadata.record_text import KipProperties, kip_line, kip_value, record_text

PARTITION_TEXT = "topicId:ASNFZ4mrze8RIjNEVWZ3iA,topicName:orders,partition:3"
SEGMENT_TEXT = f"{{id:CgsMDQ4PEBEgISIjJCUmJw,{PARTITION_TEXT}}}"
UPDATE = RemoteLogSegmentMetadataUpdate(
    SEGMENT,
    event_timestamp_ms=1700000000456,
    custom_metadata=None,
    state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
    broker_id=7,
)
MARKED = RemotePartitionDeleteMetadata(
    PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, event_timestamp_ms=1700000000789, broker_id=5
)

#: The KIP's own lines for a value's default representation; <sep> is "," there.
KIP_SHAPES = {
    "RemoteLogSegmentMetadata": "{remote-log-segment-id:<val><sep>start-offset:<val><sep>end-offset:<val><sep>"
    "leader-epoch:<val><sep>remote-log-segment-state:<val>}",
    "RemoteLogSegmentMetadataUpdate": "{remote-log-segment-id:<val><sep>leader-epoch:<val><sep>"
    "remote-log-segment-state:<val>}",
    "DeletePartitionState": "{topic-id-partition:<val><sep>epoch:<val><sep>remote-partition-delete-state:<val>}",
}
KIP_SEGMENT_ID = "{id:<val><sep>topicId:<val><sep>topicName:<val><sep>partition:<val>}"
KIP_PARTITION = "{topicId:<val><sep>topicName:<val><sep>partition:<val>}"


def shape(text: str) -> re.Pattern[str]:
    escaped = re.escape(text).replace(re.escape("<sep>"), ",")
    return re.compile(escaped.replace(re.escape("<val>"), r"([^,{}]+|\{[^{}]+\})"))


@pytest.mark.parametrize("record", [FINISHED, UPDATE, MARKED])
def test_the_kips_own_shapes(record: RemoteLogSegmentMetadataUpdate) -> None:
    """Else a script that was written from the KIP's text does not read our lines."""
    line = kip_line(record, KipProperties(), partition=0, offset=0)
    kind, value = re.fullmatch("type:([^,]+),event-value:(.*)", line).groups()  # type: ignore[union-attr]
    found = shape(KIP_SHAPES[kind]).fullmatch(value)
    assert found is not None
    assert shape(KIP_PARTITION if record is MARKED else KIP_SEGMENT_ID).fullmatch(found[1])  # type: ignore[comparison-overlap]


def test_default_values() -> None:
    """Else the segment that a line tells of, or its state, is another one."""
    assert kip_value(FINISHED) == (
        f"{{remote-log-segment-id:{SEGMENT_TEXT},start-offset:0,end-offset:100,leader-epoch:1,"
        "remote-log-segment-state:COPY_SEGMENT_FINISHED}"
    )
    assert kip_value(UPDATE) == (
        f"{{remote-log-segment-id:{SEGMENT_TEXT},leader-epoch:7,remote-log-segment-state:DELETE_SEGMENT_STARTED}}"
    )
    assert kip_value(MARKED) == (
        f"{{topic-id-partition:{{{PARTITION_TEXT}}},epoch:5,remote-partition-delete-state:DELETE_PARTITION_MARKED}}"
    )
    assert kip_value(SNAPSHOT).startswith("{remote-log-segment-id:{id:CgsMDQ4PEBEgISIjJCUmJw},start-offset:0,")


def test_properties_add_fields_in_the_kips_order() -> None:
    """Else the four properties print something else than they say."""
    every = [f"print.{name}=true" for name in ("version", "partition", "all.event.value.fields", "message.offset")]
    line = kip_line(UPDATE, KipProperties.of(every), partition=2, offset=41)
    assert line == (
        f"partition:2,message-offset:41,type:RemoteLogSegmentMetadataUpdate,version:0,event-value:{record_text(UPDATE)}"
    )
    off = KipProperties.of(["print.version=true", "print.version=FALSE"])
    assert kip_line(UPDATE, off, partition=2, offset=41) == kip_line(UPDATE, KipProperties(), partition=0, offset=0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("print.parttion=true", "unknown property 'print.parttion'; the nearest is print.partition=true"),
        ("print.offset=true", "print.message.offset=true"),
        ("print.version", "print.version=true or print.version=false expected"),
        ("print.version=yes", "expected"),
        ("", "unknown property ''"),
    ],
)
def test_a_typo_is_refused(text: str, told: str) -> None:
    """Else a field that was asked for is silently not printed."""
    with pytest.raises(ConfigError, match=re.escape(told)):
        KipProperties.of([text])
