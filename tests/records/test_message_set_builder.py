"""Building of the old message sets, against what Kafka's own builder wrote."""

from __future__ import annotations

import pytest

from tests.records.vectors import vector
from tests.support import oracle as reference
from tests.support.message_set_builder import MessageSetBuilder, encode_message

T = 1_700_000_000_000


def two_messages(builder: MessageSetBuilder) -> bytes:
    builder.append(b"k1", b"v1", timestamp_ms=T)
    builder.append(None, b"v2", timestamp_ms=T + 5)
    return builder.build()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_a_set_is_what_kafka_writes(magic: int, codec: str) -> None:
    """The tests of old formats are worth what their data are worth."""
    built = two_messages(MessageSetBuilder(magic, 100, codec=codec))
    known = vector(f"v{magic}.{codec}")
    if codec == "none":
        assert built == known
    # The stream is the library's, and with it its length; offset, magic, attributes, timestamp and key are Kafka's.
    end = 22 if magic == 0 else 30
    assert built[:8] + built[16:end] == known[:8] + known[16:end]
    assert reference.decode(built) == reference.decode(known)
    assert len(reference.decode(built)[0]) == 2


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_log_append_time(codec: str) -> None:
    """All messages of such a set report the broker's time."""
    data = two_messages(MessageSetBuilder(1, 7, codec=codec, log_append_time_ms=T + 99))
    rows = [(row.offset, row.timestamp, row.timestamp_type) for row in reference.decode(data)[0]]
    assert rows == [(7, T + 99, 1), (8, T + 99, 1)]


def test_misuse_is_refused() -> None:
    """A set that no reader takes must not come to be."""
    with pytest.raises(ValueError, match="no timestamps"):
        MessageSetBuilder(0, 0, log_append_time_ms=1)
    with pytest.raises(ValueError, match="no message set"):
        encode_message(2, offset=0, key=None, value=None)
    with pytest.raises(ValueError, match="no zstd"):
        two_messages(MessageSetBuilder(1, 0, codec="zstd"))
    builder = MessageSetBuilder(1, 5)
    builder.append(None, b"")
    with pytest.raises(ValueError, match="does not follow"):
        builder.append(None, b"", offset=5)
    assert MessageSetBuilder(1, 5, codec="gzip").build() == b""
