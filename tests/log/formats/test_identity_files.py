"""``meta.properties``."""

from __future__ import annotations

import pathlib

import pytest

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.identity_files import (
    MetaProperties,
    PartitionMetadata,
    Uuid,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_partition_metadata,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_partition_metadata,
)

DIRECTORY_ID = Uuid(bytes.fromhex("64fd367f8cde29eaeec26a8f9ef8522d"))
#: Sat Nov 21 03:47:13 UTC 2026.
WRITTEN_MS = 1_795_232_833_000
#: As Kafka 4.3.1 writes them.
V1 = (
    b"#\n#Sat Nov 21 03:47:13 UTC 2026\nnode.id=1\ndirectory.id=ZP02f4zeKeruwmqPnvhSLQ\nversion=1\n"
    b"cluster.id=bhuKRGjEQYV27Av49dQ82g\n"
)
V0 = (
    b"#\n#Sat Nov 21 03:47:13 UTC 2026\nbroker.id=3\ndirectory.id=ZP02f4zeKeruwmqPnvhSLQ\nversion=0\n"
    b"cluster.id=c\\:\\=1 \\u00E9\n"
)


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (V1, MetaProperties("bhuKRGjEQYV27Av49dQ82g", 1, DIRECTORY_ID)),
        (V0, MetaProperties("c:=1 é", 3, DIRECTORY_ID, version=0)),
        (b"#\n#Sat Nov 21 03:47:13 UTC 2026\nversion=0\n", MetaProperties(None, None, version=0)),
    ],
)
def test_vectors_both_ways(data: bytes, properties: MetaProperties) -> None:
    """Else a broker refuses a directory that is its own, or takes another's."""
    assert parse_meta_properties(data) == properties
    assert encode_meta_properties(properties, written_ms=WRITTEN_MS) == data


def test_what_brokers_wrote(fixtures: pathlib.Path) -> None:
    """Else a directory of a real broker is refused; written again it differs in its date alone."""
    found = [path.read_bytes() for path in sorted(fixtures.rglob("meta.properties"))]
    found = [data for data in found if data.startswith(b"#")]  # others were written by hand, for a directory to open
    if not found:
        pytest.skip("the full golden data have them")
    for data in found:
        written = encode_meta_properties(parse_meta_properties(data), written_ms=0)
        assert written.splitlines()[2:] == data.splitlines()[2:]
        assert written.splitlines()[1] == b"#Thu Jan 01 00:00:00 UTC 1970"


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", MetaProperties(None, None, version=0)),
        ("cluster.id=x\nnode.id=3", MetaProperties("x", None, version=0)),
        ("version=0\nbroker.id=-5", MetaProperties(None, -5, version=0)),
        ("version=1\ncluster.id=\nnode.id=3\nfoo=bar", MetaProperties("", 3)),
    ],
)
def test_what_kafka_takes(text: str, properties: MetaProperties) -> None:
    """Else a directory that Kafka opens is refused here."""
    assert parse_meta_properties(text.encode()) == properties


@pytest.mark.parametrize(
    "text",
    [
        "version=1\nnode.id=3",
        "version=1\ncluster.id=x",
        "version=2\ncluster.id=x\nnode.id=1",
        "version=x",
        "version=0\nbroker.id=x",
        "version=0\nbroker.id=2147483648",
        "version=1\ncluster.id=x\nnode.id=3\ndirectory.id=zz",
        "version=1\ncluster.id=\\u00",
        "#" * 70_000,
    ],
)
def test_what_kafka_refuses(text: str) -> None:
    """Else a damaged file makes the directory anybody's."""
    with pytest.raises(CorruptIndexError):
        parse_meta_properties(text.encode())


VECTOR = b"version: 0\ntopic_id: ASNFZ4mrze8RIjNEVWZ3iA"
TOPIC_ID = Uuid(bytes.fromhex("0123456789abcdef1122334455667788"))


def test_vector_both_ways() -> None:
    """Else a broker refuses an exported folder for the wrong topic id."""
    metadata = parse_partition_metadata(VECTOR)
    assert metadata == PartitionMetadata(TOPIC_ID)
    assert str(metadata.topic_id) == "ASNFZ4mrze8RIjNEVWZ3iA"
    assert encode_partition_metadata(metadata) == VECTOR
    assert parse_partition_metadata(VECTOR.replace(b": 0", b":  7") + b"\n") == PartitionMetadata(TOPIC_ID, 7)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 0",
        b"version: -1\ntopic_id: ASNFZ4mrze8RIjNEVWZ3iA",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: ASNFZ4mrze8RIjNEVWZ3i",
        b"version: 0\ntopic_id:ASNFZ4mrze8RIjNEVWZ3iA",
        b"topic_id: ASNFZ4mrze8RIjNEVWZ3iA\nversion: 0",
        b"version: 0\ntopic_id: \xff\xff",
        b"x" * 5000,
    ],
)
def test_malformed_files(data: bytes) -> None:
    """Else a partition gets a topic id that nothing else knows."""
    with pytest.raises(CorruptIndexError):
        parse_partition_metadata(data)


@pytest.mark.parametrize(
    ("data", "broker_epoch"),
    [
        (b"", None),
        (b'{"version":0,"brokerEpoch":10}', 10),
        (b'{"version":1,"brokerEpoch":10,"x":[1]}', 10),
        (b'{"brokerEpoch":-7} x', -7),
        (b'{"version":0}', None),
        (b'{"version":0,"brokerEpoch":"10"}', 10),
        (b'{"version":0,"brokerEpoch":10.5}', 10),
        (b'{"version":0,"brokerEpoch":null}', None),
        (b'{"version":0,"brokerEpoch":true}', None),
        (b'{"version":0,"brokerEpoch":99999999999999999999}', None),
        (b'{"version":0,"brokerEpoch":1e400}', None),
        (b"[]", None),
        (b"5", None),
        (b"\xff", None),
        (b"[" * 4000, None),
        (b"9" * 4097, None),
    ],
)
def test_what_kafka_reads_in_it(data: bytes, broker_epoch: int | None) -> None:
    """Else a broker that comes back tells the controller an epoch that it never had, or does not start."""
    assert parse_clean_shutdown(data) == broker_epoch


def test_written_as_kafka_does() -> None:
    """Else Kafka cannot read the epoch of what we closed."""
    assert encode_clean_shutdown(10) == b'{"version":0,"brokerEpoch":10}'
    assert encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
