"""Each malformed object of the golden data: the right typed error, at the object and position it is about."""

from __future__ import annotations

import pathlib
import resource

import pytest

from tests.support.bad_objects import bucket_of, key_config
from tierlog.errors import CorruptObjectError, EncryptionKeyError, TierlogError
from tierlog.remote.api import IndexType
from tierlog.remote.tier import open_tier

# Case → (when it shows, fault). "list": the manifest; "log": reading the log; an IndexType: that part alone.
CASES: dict[str, tuple[str | IndexType, str]] = {
    "01-manifest-bad-json": ("list", "BAD_ENTRY"),
    "02-manifest-truncated": ("list", "BAD_ENTRY"),
    "03-manifest-empty": ("list", "BAD_ENTRY"),
    "04-manifest-not-object": ("list", "BAD_ENTRY"),
    "05-manifest-invalid-utf8": ("list", "BAD_ENTRY"),
    "06-manifest-version-2": ("list", "BAD_VERSION"),
    "07-manifest-no-chunkindex": ("list", "BAD_ENTRY"),
    "08-chunkindex-unknown-type": ("list", "BAD_VERSION"),
    "09-chunkindex-size-mismatch": ("list", "BAD_SIZE"),
    "10-chunkindex-zero-chunk": ("list", "BAD_SIZE"),
    "11-chunkindex-negative": ("list", "BAD_SIZE"),
    "12-chunkindex-intmax-file": ("list", "BAD_SIZE"),
    "13-chunkindex-final-size": ("list", "BAD_SIZE"),
    "14-index-position-beyond": (IndexType.TIMESTAMP, "TRUNCATED"),
    "15-index-size-negative": ("list", "BAD_SIZE"),
    "16-index-missing": ("list", "BAD_ENTRY"),
    "17-compression-lies": ("log", "BAD_COMPRESSED"),
    "18-string-number": ("list", "BAD_ENTRY"),
    "19-float-number": ("list", "BAD_ENTRY"),
    "20-log-truncated": ("log", "TRUNCATED"),
    "21-log-empty": ("log", "TRUNCATED"),
    "22-indexes-truncated": (IndexType.TIMESTAMP, "TRUNCATED"),
    "23-deep-json": ("list", "BAD_ENTRY"),
    "31-zstd-chunks-not-base64": ("list", "BAD_ENTRY"),
    "32-zstd-chunks-truncated": ("list", "TRUNCATED"),
    "33-zstd-chunks-empty": ("list", "BAD_COMPRESSED"),
    "33a-zstd-chunks-zstd-corrupt": ("list", "BAD_COMPRESSED"),
    "33b-zstd-chunks-bomb": ("list", "BAD_COMPRESSED"),
    "34-zstd-chunks-count-intmax": ("list", "BAD_COUNT"),
    "35-zstd-chunks-count-minus1": ("list", "BAD_COUNT"),
    "36-zstd-chunks-trailing": ("list", "TRAILING_BYTES"),
    "37-zstd-chunks-last-size": ("log", "TRUNCATED"),
    "38-zstd-chunks-bytes-per-value": ("list", "BAD_SIZE"),
    "39-zstd-frame-corrupt": ("log", "BAD_COMPRESSED"),
    "3a-zstd-magic-corrupt": ("log", "BAD_COMPRESSED"),
    "3b-zstd-bomb-chunk": ("log", "OVER_LIMIT"),
    "51-aes-truncated-chunk": ("log", "TRUNCATED"),
    "52-aes-tag-flipped": ("log", "NOT_AUTHENTIC"),
    "53-aes-iv-flipped": ("log", "NOT_AUTHENTIC"),
    "54-aes-ciphertext-flipped": ("log", "NOT_AUTHENTIC"),
    "55-aes-chunk-shorter-than-iv": ("log", "TRUNCATED"),
    "57-aes-wrong-aad": ("log", "NOT_AUTHENTIC"),
    "58-aes-unknown-key-id": ("log", "KEY"),
    "59-aes-datakey-corrupt": ("log", "KEY"),
    "5a-aes-datakey-no-id": ("list", "BAD_ENTRY"),
    "5b-aes-datakey-not-base64": ("list", "BAD_ENTRY"),
    "5c-aes-no-encryption-field": ("list", "BAD_SIZE"),
    "5d-aes-wrong-key": ("log", "KEY"),
    "5e-aes-index-tag-flipped": (IndexType.LEADER_EPOCH, "NOT_AUTHENTIC"),
    "71-zstd-aes-truncated": ("log", "TRUNCATED"),
}
#: Sound to the storage: 56 is for the checksums of the batches.
READABLE = ["00-plain-good", "30-zstd-good", "50-aes-good", "56-aes-chunks-swapped", "70-zstd-aes-good"]


def laid_out(name: str, root: pathlib.Path) -> pathlib.Path:
    bucket_of(name, root)
    return root


def first_fault(bucket: pathlib.Path, config: dict[str, str]) -> tuple[str | IndexType, TierlogError] | None:
    """Where a full read of the only segment stops; None if all of it comes out."""
    with open_tier(str(bucket), layout="aiven", config=config) as tier:
        faults: list[TierlogError] = []
        segments = list(tier.iter_segments(faults=faults))
        if faults:
            return "list", faults[0]
        try:
            assert sum(len(window) for _, window in tier.iter_log_windows(segments[0])) == segments[0].size_bytes
        except TierlogError as error:
            return "log", error
        for kind in IndexType:
            try:
                tier.fetch_index(segments[0], kind)
            except TierlogError as error:
                return kind, error
    return None


def fault_name(error: TierlogError) -> str:
    if isinstance(error, EncryptionKeyError):
        return "KEY"
    assert isinstance(error, CorruptObjectError), type(error)
    return error.fault


def test_every_case_is_here(data: pathlib.Path) -> None:
    """If this fails, a malformed object was added that no test reads."""
    assert sorted(p.name for p in (data / "bad" / "objects").iterdir()) == sorted([*CASES, *READABLE])


@pytest.mark.parametrize("name", READABLE)
def test_controls_read(data: pathlib.Path, tmp_path: pathlib.Path, name: str) -> None:
    """If this fails, sound data is called malformed."""
    assert first_fault(laid_out(name, tmp_path / "b"), key_config(data)) is None


@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_named(data: pathlib.Path, tmp_path: pathlib.Path, name: str) -> None:
    """If this fails, an operator gets a crash, the wrong culprit, or quietly wrong bytes."""
    bucket = laid_out(name, tmp_path / "b")
    found = first_fault(bucket, key_config(data))
    assert found is not None
    place, error = found
    assert (place, fault_name(error)) == CASES[name]
    suffix = {"list": ".rsm-manifest", "log": ".log"}.get(str(place), ".indexes")
    if isinstance(error, EncryptionKeyError):
        suffix = ".rsm-manifest"  # which names the key
    assert suffix in str(error), "the object is not named"


def test_without_a_place_for_faults_the_first_one_is_raised(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a read skips a segment whose manifest is broken, in silence."""
    bucket = laid_out("06-manifest-version-2", tmp_path / "b")
    with open_tier(str(bucket), config=key_config(data)) as tier, pytest.raises(CorruptObjectError, match="version"):
        list(tier.iter_segments())


def test_no_bad_object_makes_the_reader_swell(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a bomb or a lying size takes the machine down."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in sorted((data / "bad" / "objects").iterdir()):
        first_fault(laid_out(case.name, tmp_path / case.name), key_config(data))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_a_missing_key_is_named_with_the_object_that_asks_for_it(data: pathlib.Path) -> None:
    """The id is in the manifest; a reader that looks into the log for it finds ciphertext."""
    with open_tier(str(data / "zstd-aes" / "objects"), layout="aiven") as tier:
        segment = next(iter(tier.iter_segments()))
        with pytest.raises(EncryptionKeyError, match=r"^\S+\.rsm-manifest: no private key with id 'k1'"):
            tier.fetch_index(segment, IndexType.OFFSET)
        with pytest.raises(EncryptionKeyError, match=r"^\S+\.rsm-manifest: no private key with id 'k1'"):
            next(tier.iter_log_windows(segment))
