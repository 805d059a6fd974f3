"""The key ring: private RSA keys by id, and the data keys that they unwrap.

RSA-OAEP with SHA3-512 for the hash and for MGF1, empty label (section 7 of the object format). ``cryptography``
refuses that pair of hashes, so unwrapping is pycryptodome's; AES-GCM is ``cryptography``'s.

Invariant: no key material is in a repr, a message, a pickle or a segment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from tierlog.errors import ConfigError, EncryptionKeyError
from tierlog.remote.storage.segment import SegmentEncryption
from tierlog.runtime.machine import Machine

if TYPE_CHECKING:  # most tiers are not encrypted, and these take longer to import than the rest of a reader
    from Crypto.PublicKey import RSA
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DATA_KEY_BYTES: Final = 32
#: Data keys are few (one a segment) and small; older ones are forgotten.
_CACHED_MAX: Final = 4096
#: An OAEP data key of 32 bytes fits no smaller modulus (section 7).
_MODULUS_BITS_MIN: Final = 1296


class KeyRing:
    """Private keys by id.

    Args:
        private_keys: Key id → the private key file's bytes: PEM or DER, PKCS#8 (or PKCS#1), unencrypted.
        machine: Its locks.

    Raises:
        ConfigError: a key cannot be read; names the id.

    Thread safety: any number of threads.
    """

    def __init__(self, private_keys: Mapping[str, bytes], machine: Machine | None = None) -> None:
        self._keys = {key_id: _import_key(key_id, data) for key_id, data in private_keys.items()}
        self._lock = (machine or Machine()).scheduler.lock()
        self._ciphers: dict[tuple[str, bytes], AESGCM] = {}

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._keys))

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self.key_ids)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key ring holds private keys and is not pickled: open the tier where it is read")

    def cipher(self, encryption: SegmentEncryption) -> AESGCM:
        """The segment's cipher; the data key is unwrapped once.

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

    def _unwrap(self, encryption: SegmentEncryption) -> bytes:
        key = self._keys.get(encryption.key_id)
        if key is None:
            known = (
                f"the ring has {', '.join(self.key_ids)}" if self._keys else "no encryption.key.pairs are configured"
            )
            raise EncryptionKeyError(f"no private key with id {encryption.key_id!r}: {known}")
        from Crypto.Cipher import PKCS1_OAEP
        from Crypto.Hash import SHA3_512
        from Crypto.Signature.pss import MGF1

        opener = PKCS1_OAEP.new(key, hashAlgo=SHA3_512, mgfunc=lambda seed, size: MGF1(seed, size, SHA3_512))
        try:
            data_key = opener.decrypt(encryption.wrapped_key)
        except (ValueError, TypeError) as cause:
            text = f"the private key with id {encryption.key_id!r} does not open the data key"
            raise EncryptionKeyError(f"{text}: another key under the same id, or a damaged manifest") from cause
        if len(data_key) != DATA_KEY_BYTES:
            text = f"the data key under id {encryption.key_id!r} has {len(data_key)} bytes, not {DATA_KEY_BYTES}"
            raise EncryptionKeyError(text)
        return data_key


def _import_key(key_id: str, data: bytes) -> RSA.RsaKey:
    from Crypto.PublicKey import RSA

    place = f"encryption.key.pairs.{key_id}.private.key.file"
    try:
        key = RSA.import_key(data)
    except (ValueError, IndexError, TypeError):
        # The cause is left out on purpose: it may quote what it could not parse.
        raise ConfigError(f"{place}: not an unencrypted RSA private key in PEM or DER") from None
    if not key.has_private():
        raise ConfigError(f"{place}: this is a public key")
    if key.size_in_bits() < _MODULUS_BITS_MIN:
        raise ConfigError(f"{place}: {key.size_in_bits()} bits, at least {_MODULUS_BITS_MIN} are needed")
    return key
