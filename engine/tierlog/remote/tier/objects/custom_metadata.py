"""The custom metadata of a segment: Kafka's tagged fields, as the plugin writes them, and one of ours.

```
count  uvarint
field  tag uvarint | length uvarint | payload          by ascending tag
  0    REMOTE_SIZE      zig-zag varlong: stored bytes of log, indexes and manifest
  1    OBJECT_PREFIX    compact string: uvarint (bytes + 1), UTF-8
  2    OBJECT_KEY       compact string: the key without prefix and suffix
  100  ours             32 bytes: SHA-256 of the manifest
```

Source: docs/formats/objects.md, Custom metadata; Kafka's TaggedFields, ByteUtils and Type.COMPACT_STRING.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tierlog.errors import CorruptObjectError

_REMOTE_SIZE: Final = 0
_OBJECT_PREFIX: Final = 1
_OBJECT_KEY: Final = 2
#: Far above the plugin's, which it counts up from 0; one byte as a uvarint.
_MANIFEST_DIGEST: Final = 100
_DIGEST_BYTES: Final = 32
_UVARINT_BYTES_MAX: Final = 5
_VARLONG_BYTES_MAX: Final = 10
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SegmentCustomMetadata:
    """The fields of a segment's custom metadata; None for an absent one.

    Args:
        remote_size: Bytes of all its objects.
        object_prefix: In place of the configured ``key.prefix``.
        object_key: In place of the key that its ids give, without prefix and suffix.
        manifest_digest: SHA-256 of the manifest as stored.
        others: Fields that we do not know, as (tag, payload), ascending.
    """

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None
    manifest_digest: bytes | None = None
    others: tuple[tuple[int, bytes], ...] = ()

    @classmethod
    def of(
        cls, fields: Collection[str], *, remote_size: int, object_prefix: str, object_key: str, digest: bytes | None
    ) -> SegmentCustomMetadata:
        """Return the custom metadata with the configured fields.

        Args:
            fields: Of ``custom.metadata.fields.include``.
            remote_size: Bytes; before the copy, the most that they can be.
            object_prefix: As configured.
            object_key: Without prefix and suffix.
            digest: None unless ``manifest.digest.enabled``.
        """
        return cls(
            remote_size=remote_size if "REMOTE_SIZE" in fields else None,
            object_prefix=object_prefix if "OBJECT_PREFIX" in fields else None,
            object_key=object_key if "OBJECT_KEY" in fields else None,
            manifest_digest=digest,
        )

    def encode(self) -> bytes | None:
        """Encode the fields; None without any, as by the plugin."""
        fields = dict(self.others)
        if self.remote_size is not None:
            fields[_REMOTE_SIZE] = _uvarint(_zigzag(self.remote_size))
        if self.object_prefix is not None:
            fields[_OBJECT_PREFIX] = _compact_string(self.object_prefix)
        if self.object_key is not None:
            fields[_OBJECT_KEY] = _compact_string(self.object_key)
        if self.manifest_digest is not None:
            assert len(self.manifest_digest) == _DIGEST_BYTES
            fields[_MANIFEST_DIGEST] = self.manifest_digest
        if not fields:
            return None
        parts = [_uvarint(len(fields))]
        for tag in sorted(fields):
            parts += [_uvarint(tag), _uvarint(len(fields[tag])), fields[tag]]
        return b"".join(parts)


def decode_custom_metadata(data: bytes | None, *, where: str) -> SegmentCustomMetadata:
    """Decode custom metadata; bytes behind the section are ignored, as by the plugin.

    Args:
        data: None or b"" for none.
        where: The segment, for messages.

    Raises:
        CorruptObjectError: not tagged fields, tags that do not rise, or a known field of another form.
    """
    if not data:
        return SegmentCustomMetadata()
    reader = _Reader(data, where)
    payloads: dict[int, _Reader] = {}
    last = -1
    for _ in range(reader.uvarint()):
        at, tag = reader.position, reader.uvarint()
        if tag <= last:
            raise reader.corrupt(f"tag {tag} follows tag {last}", at)
        last = tag
        payloads[tag] = reader.sub(reader.uvarint())
    size, prefix, key = (payloads.pop(tag, None) for tag in (_REMOTE_SIZE, _OBJECT_PREFIX, _OBJECT_KEY))
    digest = payloads.pop(_MANIFEST_DIGEST, None)
    return SegmentCustomMetadata(
        remote_size=None if size is None else size.whole_varlong(),
        object_prefix=None if prefix is None else prefix.whole_string(),
        object_key=None if key is None else key.whole_string(),
        manifest_digest=None if digest is None else digest.whole(_DIGEST_BYTES),
        others=tuple((tag, payload.rest()) for tag, payload in payloads.items()),
    )


def _zigzag(value: int) -> int:
    assert -_INT64_MAX - 1 <= value <= _INT64_MAX
    return value << 1 ^ value >> 63


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact_string(text: str) -> bytes:
    data = text.encode("utf-8")
    return _uvarint(len(data) + 1) + data


class _Reader:
    """A read position over borrowed bytes; every read checks the bytes left."""

    def __init__(self, data: bytes, where: str, start: int = 0, end: int | None = None) -> None:
        self._data = data
        self._where = where
        self._end = len(data) if end is None else end
        self.position = start

    def corrupt(self, text: str, position: int) -> CorruptObjectError:
        return CorruptObjectError(f"custom metadata: {text}", fault="BAD_ENTRY", position=position, where=self._where)

    def _varint(self, bytes_max: int) -> int:
        start, value = self.position, 0
        for shift in range(0, 7 * bytes_max, 7):
            if self.position >= self._end:
                raise self.corrupt("ends within a number", start)
            byte = self._data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.corrupt(f"a number of more than {bytes_max} bytes", start)

    def uvarint(self) -> int:
        return self._varint(_UVARINT_BYTES_MAX)

    def sub(self, size: int) -> _Reader:
        """Read the next bytes as a reader of their own."""
        if size > self._end - self.position:
            raise self.corrupt(f"a field of {size} bytes, {self._end - self.position} are left", self.position)
        start, self.position = self.position, self.position + size
        return _Reader(self._data, self._where, start, self.position)

    def rest(self) -> bytes:
        return self._data[self.position : self._end]

    def whole(self, size: int) -> bytes:
        if self._end - self.position != size:
            raise self.corrupt(f"a field of {self._end - self.position} bytes, {size} expected", self.position)
        return self.rest()

    def whole_varlong(self) -> int:
        value = self._varint(_VARLONG_BYTES_MAX) & 0xFFFF_FFFF_FFFF_FFFF
        self.whole(0)
        return value >> 1 ^ -(value & 1)

    def whole_string(self) -> str:
        size = self.uvarint()
        if size == 0:
            raise self.corrupt("a null string", self.position)
        start = self.position
        try:
            return self.whole(size - 1).decode("utf-8")
        except UnicodeDecodeError as cause:
            raise self.corrupt("a string that is not UTF-8", start) from cause


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """The part that all keys of a segment share, and the prefix of it that messages mask."""

    prefix: str
    path: str

    @property
    def base(self) -> str:
        return self.prefix + self.path


def places_of(custom: SegmentCustomMetadata, segment_path: str, key_prefix: str) -> list[SegmentPlace]:
    """Return the places where a segment may be: one or two, to be tried in this order.

    Args:
        custom: Of the segment.
        segment_path: As its ids give it, without the prefix.
        key_prefix: As configured.
    """
    named = SegmentPlace(
        key_prefix if custom.object_prefix is None else custom.object_prefix,
        segment_path if custom.object_key is None else custom.object_key,
    )
    return list(dict.fromkeys((named, SegmentPlace(key_prefix, segment_path))))
