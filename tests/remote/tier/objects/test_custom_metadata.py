"""Custom metadata: the format's vectors, what stays, and hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tierlog.errors import CorruptObjectError
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata, decode_custom_metadata

KEY = "topic-lZ6vvmajTWKDBUTV6SQAtQ/7/00000000000000000023-adh9f8BMS4anaUnD8KWfWg"
# Bytes that the plugin wrote (docs/formats/objects.md, Custom metadata).
VECTORS = [
    (SegmentCustomMetadata(remote_size=0), "01000100"),
    (SegmentCustomMetadata(remote_size=1), "01000102"),
    (SegmentCustomMetadata(remote_size=100), "010002c801"),
    (SegmentCustomMetadata(remote_size=5_000_000_000), "01000580c8afa025"),
    (SegmentCustomMetadata(remote_size=100, object_key="foo"), "020002c801020404666f6f"),
    (SegmentCustomMetadata(object_prefix="", object_key="x" * 200), "0201010102ca01c901" + 200 * "78"),
    (SegmentCustomMetadata(object_prefix="пре/"), "01010808d0bfd180d0b52f"),
    (
        SegmentCustomMetadata(remote_size=301_468, object_prefix="some/prefix/", object_key=KEY),
        "030003b8e624010d0d736f6d652f7072656669782f024b4b" + KEY.encode().hex(),
    ),
]


@pytest.mark.parametrize(("fields", "encoded"), VECTORS)
def test_vectors(fields: SegmentCustomMetadata, encoded: str) -> None:
    """If this fails, the plugin cannot read what we leave with a segment, or we not what it left."""
    assert fields.encode() == bytes.fromhex(encoded)
    assert decode_custom_metadata(bytes.fromhex(encoded), where="s") == fields


def test_nothing_is_nothing() -> None:
    """If this fails, segments without custom metadata get some, or cannot be fetched."""
    assert SegmentCustomMetadata().encode() is None
    for nothing in (None, b"", b"\0"):
        assert decode_custom_metadata(nothing, where="s") == SegmentCustomMetadata()


def test_the_configured_fields_are_written() -> None:
    """If this fails, an operator's choice of fields is not heard."""

    def of(*fields: str, digest: bytes | None = None) -> SegmentCustomMetadata:
        return SegmentCustomMetadata.of(fields, remote_size=5, object_prefix="p/", object_key="k", digest=digest)

    assert of() == SegmentCustomMetadata()
    assert of("OBJECT_KEY", "REMOTE_SIZE") == SegmentCustomMetadata(remote_size=5, object_key="k")
    assert of("OBJECT_PREFIX") == SegmentCustomMetadata(object_prefix="p/")
    assert of(digest=bytes(32)) == SegmentCustomMetadata(manifest_digest=bytes(32))


def test_our_tag_is_one_the_plugin_passes_over() -> None:
    """If this fails, the plugin fails on a segment of ours, or the digest takes more room than documented."""
    plain, signed = (
        SegmentCustomMetadata(remote_size=7),
        SegmentCustomMetadata(remote_size=7, manifest_digest=bytes(32)),
    )
    assert len(signed.encode() or b"") == len(plain.encode() or b"") + 34
    assert (signed.encode() or b"").endswith(bytes([100, 32]) + bytes(32))
    assert decode_custom_metadata(signed.encode(), where="s") == signed


def test_unknown_tags_are_kept() -> None:
    """If this fails, a newer plugin's fields are lost when a segment's metadata is written again."""
    data = bytes.fromhex("030001c8".replace("01c8", "02c801") + "0502aabb" + "c8010100")
    found = decode_custom_metadata(data, where="s")
    assert found == SegmentCustomMetadata(remote_size=100, others=((5, b"\xaa\xbb"), (200, b"\0")))
    assert found.encode() == data


def test_bytes_behind_are_ignored() -> None:
    """If this fails, what the plugin reads is refused here."""
    assert decode_custom_metadata(bytes.fromhex("01000102ffff"), where="s").remote_size == 1


@pytest.mark.parametrize(
    "encoded",
    [
        "01",  # no field
        "020001020001",  # a tag twice
        "020102c801000102",  # tags fall
        "01000202",  # a field longer than what is left
        "0100020200",  # a number shorter than its field
        "010003ffffff",  # a number without an end
        "01020100",  # a null string
        "0102020561",  # a string longer than its field
        "01020302ff00",  # not UTF-8
        "01641f" + "00" * 31,  # a digest of 31 bytes
        "ffffffffff01",  # a count of six bytes
    ],
)
def test_damage_is_typed(encoded: str) -> None:
    """If this fails, damaged metadata is a traceback, or sends a fetch to another object."""
    with pytest.raises(CorruptObjectError, match="the-segment"):
        decode_custom_metadata(bytes.fromhex(encoded), where="the-segment")


@given(st.binary(max_size=64))
@example(b"\xff\xff\xff\xff\x0f")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """If this fails, a broken metadata topic ends the process or takes its memory."""
    try:
        found = decode_custom_metadata(data, where="s")
    except CorruptObjectError:
        return
    again = found.encode()
    assert decode_custom_metadata(again, where="s") == found


@given(
    st.builds(
        SegmentCustomMetadata,
        remote_size=st.none() | st.integers(0, 2**63 - 1),
        object_prefix=st.none() | st.text(max_size=20),
        object_key=st.none() | st.text(max_size=20),
        manifest_digest=st.none() | st.binary(min_size=32, max_size=32),
    )
)
def test_round_trip(fields: SegmentCustomMetadata) -> None:
    """If this fails, some prefix or key does not come back, and its segment is not found."""
    assert decode_custom_metadata(fields.encode(), where="s") == fields
