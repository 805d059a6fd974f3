"""Where the objects of a segment may be: as its custom metadata says, then as configured.

``key.prefix`` may have changed since a segment was copied. The plugin then finds its manifest no more, and leaves its
objects for ever (docs/formats/objects.md, Where Tierlog and the plugin differ).
"""

from __future__ import annotations

from dataclasses import dataclass

from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """The part that all keys of a segment share, and the prefix of it that messages mask."""

    prefix: str
    path: str

    @property
    def base(self) -> str:
        return self.prefix + self.path


def places_of(custom: SegmentCustomMetadata, segment_path: str, key_prefix: str) -> list[SegmentPlace]:
    """The places where a segment may be: one or two, to be tried in this order.

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
