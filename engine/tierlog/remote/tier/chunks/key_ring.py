"""The key ring: RSA keys by id, the data keys that they unwrap, and the active key that wraps new ones.

RSA-OAEP with SHA3-512 for the hash and for MGF1, empty label (docs/formats/objects.md, Data key). ``cryptography``
refuses that pair of hashes, so wrapping is pycryptodome's; AES-GCM is ``cryptography``'s.

Invariant: no key material is in a repr, a message, a pickle or a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tierlog._extras import require_extra
from tierlog.errors import ConfigError, EncryptionKeyError, StoreError
from tierlog.remote.config import StorageConfig
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import read_secret_file

if TYPE_CHECKING:  # most tiers are not encrypted, and these take longer to import than the rest of a reader
    from Crypto.PublicKey import RSA
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DATA_KEY_BYTES: Final = 32
AAD_BYTES: Final = 32
IV_BYTES: Final = 12
TAG_BYTES: Final = 16
UNIT_OVERHEAD_BYTES: Final = IV_BYTES + TAG_BYTES
#: Data keys are few (one a segment) and small; older ones are forgotten.
_CACHED_MAX: Final = 4096
#: An OAEP data key of 32 bytes fits no smaller modulus.
_MODULUS_BITS_MIN: Final = 1296
_KEY_FILE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SegmentEncryption:
    """The encryption of a segment's parts; no secret: the data key is wrapped."""

    key_id: str
    wrapped_key: bytes = field(repr=False)
    aad: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """The key of a segment that is being written: one a segment, never of two.

    Args:
        data_key: 32 secret bytes, of AES-256-GCM.
        encryption: The manifest's description of it.
    """

    data_key: bytes = field(repr=False)
    encryption: SegmentEncryption

    def __reduce__(self) -> NoReturn:
        raise TypeError("a data key is not pickled")


class KeyRing:
    """RSA keys by id.

    Args:
        private_keys: Key id → the private key file's bytes: PEM or DER, PKCS#8 (or PKCS#1), unencrypted.
        machine: Its locks and its chance.
        public_keys: The same of public keys, SubjectPublicKeyInfo; only writing needs them.
        active_key_id: Which of them wraps new data keys; None if nothing is written with this ring.

    Raises:
        ConfigError: a key cannot be read, or is not the other half of its pair; names the id.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        private_keys: Mapping[str, bytes],
        machine: Machine | None = None,
        *,
        public_keys: Mapping[str, bytes] | None = None,
        active_key_id: str | None = None,
    ) -> None:
        self._keys = {key_id: _import_key(key_id, data, "private") for key_id, data in private_keys.items()}
        self._public = {key_id: _import_key(key_id, data, "public") for key_id, data in (public_keys or {}).items()}
        for key_id, public in self._public.items():
            private = self._keys.get(key_id)
            if private is not None and (private.n, private.e) != (public.n, public.e):
                raise ConfigError(f"encryption.key.pairs.{key_id}: the two files are not of one key pair")
        if active_key_id is not None and active_key_id not in self._public:
            raise ConfigError(f"Encryption key '{active_key_id}' must be provided")
        self._active_key_id = active_key_id
        machine = machine or Machine()
        self._rng = machine.rng
        self._lock = machine.scheduler.lock()
        self._ciphers: dict[tuple[str, bytes], AESGCM] = {}

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._keys))

    @property
    def active_key_id(self) -> str | None:
        """Id of the pair that wraps new data keys."""
        return self._active_key_id

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self.key_ids)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key ring holds private keys and is not pickled: open the tier where it is read")

    def take(self, other: KeyRing) -> None:
        """Have the keys of another ring from now on, and no others."""
        with self._lock:
            self._keys, self._public, self._active_key_id = other._keys, other._public, other._active_key_id
            self._ciphers.clear()

    def cipher(self, encryption: SegmentEncryption) -> AESGCM:
        """Return the segment's cipher; the data key is unwrapped once.

        Raises:
            EncryptionKeyError: the ring has no key of this id, or it does not open the data key.
        """
        wrapped = (encryption.key_id, encryption.wrapped_key)
        with self._lock:
            known = self._ciphers.get(wrapped)
        if known is not None:
            return known
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        made = AESGCM(self._unwrap(encryption))
        with self._lock:
            if len(self._ciphers) >= _CACHED_MAX:
                self._ciphers.pop(next(iter(self._ciphers)))
            self._ciphers[wrapped] = made
        return made

    def new_segment_key(self) -> SegmentKey:
        """Make a fresh data key and AAD for one segment, wrapped by the active pair.

        Raises:
            ConfigError: the ring has no active pair.
        """
        data_key = self._rng.secret_bytes(DATA_KEY_BYTES)
        return SegmentKey(data_key, self._wrap(data_key, self._rng.secret_bytes(AAD_BYTES)))

    def rewrap(self, encryption: SegmentEncryption) -> SegmentEncryption:
        """Return the same data key under the active pair: chunks and indexes stay as they are. The same if it is there.

        Raises:
            EncryptionKeyError: the ring does not open it. ConfigError: the ring has no active pair.
        """
        if encryption.key_id == self._active_key_id:
            return encryption
        return self._wrap(self._unwrap(encryption), encryption.aad)

    def require_same_data_key(self, one: SegmentEncryption, other: SegmentEncryption) -> None:
        """Raise EncryptionKeyError if the two do not open to the same data key, or one of them does not open at all."""
        if self._unwrap(one) != self._unwrap(other):
            raise EncryptionKeyError(f"the data keys under {one.key_id!r} and {other.key_id!r} are not the same")

    def _wrap(self, data_key: bytes, aad: bytes) -> SegmentEncryption:
        with self._lock:  # another ring may be taken meanwhile: id and key are of one
            active, public = self._active_key_id, self._public
        if active is None:
            raise ConfigError("no encryption.key.pair.id is configured: nothing can be encrypted")
        wrapped = _oaep(public[active], self._rng.secret_bytes).encrypt(data_key)
        return SegmentEncryption(active, wrapped, aad)

    def _unwrap(self, encryption: SegmentEncryption) -> bytes:
        key = self._keys.get(encryption.key_id)
        if key is None:
            known = (
                f"the ring has {', '.join(self.key_ids)}" if self._keys else "no encryption.key.pairs are configured"
            )
            raise EncryptionKeyError(f"no private key with id {encryption.key_id!r}: {known}")
        try:
            data_key: bytes = _oaep(key).decrypt(encryption.wrapped_key)
        except (ValueError, TypeError) as cause:
            text = f"the private key with id {encryption.key_id!r} does not open the data key"
            raise EncryptionKeyError(f"{text}: another key under the same id, or a damaged manifest") from cause
        if len(data_key) != DATA_KEY_BYTES:
            text = f"the data key under id {encryption.key_id!r} has {len(data_key)} bytes, not {DATA_KEY_BYTES}"
            raise EncryptionKeyError(text)
        return data_key


def read_key_ring(config: StorageConfig, machine: Machine, *, writing: bool = False) -> KeyRing:
    """Read the ring of a configuration.

    Args:
        config: Names the files.
        machine: Has them.
        writing: Take public keys and the active pair too, if encryption is enabled.

    Raises:
        ConfigError: a file cannot be read, or holds no key; names the configuration key.
    """
    writing = writing and config.encryption_enabled
    if writing or config.private_key_files:
        require_extra("encryption", "encryption.key.pairs")

    def read(paths: Mapping[str, str], kind: str) -> dict[str, bytes]:
        found = {}
        for key_id, path in paths.items():
            key = f"encryption.key.pairs.{key_id}.{kind}.key.file"
            try:
                if kind == "private":
                    found[key_id] = read_secret_file(key, path, machine.files, limit_bytes=_KEY_FILE_BYTES_MAX)
                else:
                    found[key_id] = machine.files.read_whole(path, limit_bytes=_KEY_FILE_BYTES_MAX)
            except StoreError as cause:
                raise ConfigError(f"{key}: {cause}") from cause
        return found

    return KeyRing(
        read(config.private_key_files, "private"),
        machine,
        public_keys=read(config.public_key_files, "public") if writing else None,
        active_key_id=config.encryption_key_pair_id if writing else None,
    )


def _oaep(key: RSA.RsaKey, random_bytes: Callable[[int], bytes] | None = None) -> Any:
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512
    from Crypto.Signature.pss import MGF1

    def mask(seed: bytes, size: int) -> bytes:
        return MGF1(seed, size, SHA3_512)

    return PKCS1_OAEP.new(key, hashAlgo=SHA3_512, mgfunc=mask, randfunc=random_bytes)


def _import_key(key_id: str, data: bytes, kind: str) -> RSA.RsaKey:
    from Crypto.PublicKey import RSA

    place = f"encryption.key.pairs.{key_id}.{kind}.key.file"
    try:
        key = RSA.import_key(data)
    except (ValueError, IndexError, TypeError):
        # The cause is left out on purpose: it may quote the text that it could not parse.
        raise ConfigError(f"{place}: not an unencrypted RSA {kind} key in PEM or DER") from None
    if key.has_private() != (kind == "private"):
        raise ConfigError(f"{place}: this is a {'private' if key.has_private() else 'public'} key")
    if key.size_in_bits() < _MODULUS_BITS_MIN:
        raise ConfigError(f"{place}: {key.size_in_bits()} bits, at least {_MODULUS_BITS_MIN} are needed")
    return key
