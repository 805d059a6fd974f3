"""The plugin's three objects, written: the log in chunks, the indexes one behind the other, the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tierlog.errors import SizeLimitError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.tier.chunks.decoding import IV_BYTES, UNIT_OVERHEAD_BYTES
from tierlog.remote.tier.chunks.encoding import ChunkAssembler
from tierlog.remote.tier.chunks.key_ring import SegmentKey
from tierlog.remote.tier.layouts.segment_objects import (
    Removal,
    StoredLog,
    bases_of,
    check_parts,
    require_stored,
)
from tierlog.remote.tier.objects.json_object import INT32_MAX
from tierlog.remote.tier.objects.manifest import Manifest
from tierlog.remote.tier.objects.manifest_writing import (
    INDEX_ORDER,
    encode_manifest,
    place_indexes,
    stored_chunk_index,
)
from tierlog.remote.tier.objects.object_keys import aiven_segment_path
from tierlog.remote.tier.objects.part_suffixes import LOG, REMOTE_LOG_INDEX
from tierlog.runtime.machine.randomness import Rng

_LOG: Final = f".{LOG}"
_INDEXES: Final = ".indexes"
_MANIFEST: Final = ".rsm-manifest"
_LOG_INDEX: Final = f".{REMOTE_LOG_INDEX}"


class AivenObjects:
    """The objects of one copy under the plugin's layout.

    Args:
        config: Chunk size, level, prefix.
        metadata: Of the segment.
        parts: Content of its parts beside the log; TRANSACTION only if the broker gave one, empty or not.
        compression: Of this segment: the heuristic may have said no.
        segment_key: None to store it in the clear.
        rng: For IVs.
        txn_idx_empty_known: See ``encode_manifest``.

    Raises:
        SizeLimitError: its indexes are too large for the format.
    """

    needs_checksum = False

    def __init__(
        self,
        config: StorageConfig,
        metadata: RemoteLogSegmentMetadata,
        parts: Mapping[IndexType, bytes],
        *,
        compression: bool,
        segment_key: SegmentKey | None,
        rng: Rng,
        txn_idx_empty_known: bool = True,
    ) -> None:
        check_parts(parts)
        self.segment_path = aiven_segment_path(metadata)
        self._base = config.key_prefix + self.segment_path
        self._metadata = metadata
        self._chunk_size = config.chunk_size
        self._compression = compression
        self._encryption = None if segment_key is None else segment_key.encryption
        self._rng = rng
        self._txn_idx_empty_known = txn_idx_empty_known
        self.assembler: ChunkAssembler | None = None
        if compression or segment_key is not None:
            self.assembler = ChunkAssembler(
                original_chunk_size=config.chunk_size,
                original_file_size=metadata.segment_size_in_bytes,
                compression_level=config.compression_level if compression else None,
                data_key=None if segment_key is None else segment_key.data_key,
                aad=None if segment_key is None else segment_key.encryption.aad,
            )
        units = [(kind, self._sealed(parts[kind])) for kind in INDEX_ORDER if kind in parts]
        self._indexes = b"".join(unit for _, unit in units)
        if len(self._indexes) > INT32_MAX:
            text = f"indexes of {len(self._indexes)} bytes in all: the format allows {INT32_MAX}"
            raise SizeLimitError(
                text, fault="OVER_LIMIT", expected=INT32_MAX, found=len(self._indexes), where=self._base + _INDEXES
            )
        self._placed = place_indexes((kind, len(unit)) for kind, unit in units)

    @property
    def log_key(self) -> str:
        return self._base + _LOG

    @property
    def description_key(self) -> str:
        return self._base + _MANIFEST

    @property
    def log_index_key(self) -> str:
        return self._base + _LOG_INDEX

    def new_iv(self) -> bytes | None:
        """Random: 2^32 of them under one key are the limit, which 2^31 bytes of log cannot reach."""
        return None if self._encryption is None else self._rng.secret_bytes(IV_BYTES)

    def _sealed(self, plain: bytes) -> bytes:
        """An index as stored: never compressed, and an empty one has no shell."""
        iv = self.new_iv() if plain else None
        if iv is None or self.assembler is None:
            return plain
        unit = bytearray(len(plain) + UNIT_OVERHEAD_BYTES)
        self.assembler.seal(plain, unit, iv=iv)
        return bytes(unit)

    def small_objects(self) -> tuple[tuple[str, bytes], ...]:
        """The indexes object, empty or not."""
        return ((self._base + _INDEXES, self._indexes),)

    def description(self, log: StoredLog) -> bytes:
        """The manifest."""
        if (log.transformed_sizes is not None) != self._compression:
            raise ValueError("chunk sizes come with compressed chunks, and only with them")
        chunk_index = stored_chunk_index(
            original_chunk_size=self._chunk_size,
            original_file_size=self._metadata.segment_size_in_bytes,
            encrypted=self._encryption is not None,
            transformed_sizes=log.transformed_sizes,
        )
        require_stored(log, chunk_index.object_size_bytes, self.log_key)
        manifest = Manifest(chunk_index, self._placed, self._compression, self._encryption, self._metadata)
        return encode_manifest(manifest, txn_idx_empty_known=self._txn_idx_empty_known)


def aiven_log_index_keys(metadata: RemoteLogSegmentMetadata, key_prefix: str) -> list[str]:
    """Where its entry of the remote log index may be, to be tried in this order; raises as ``aiven_removal``."""
    return [base + _LOG_INDEX for base in bases_of(metadata, aiven_segment_path(metadata), key_prefix)]


def aiven_removal(metadata: RemoteLogSegmentMetadata, key_prefix: str) -> Removal:
    """The keys that a deletion takes away. Raises CorruptObjectError: the segment's custom metadata is damaged."""
    bases = bases_of(metadata, aiven_segment_path(metadata), key_prefix)
    return Removal(
        descriptions=tuple(base + _MANIFEST for base in bases),
        others=tuple(base + suffix for base in bases for suffix in (_LOG, _INDEXES, _LOG_INDEX)),
    )
