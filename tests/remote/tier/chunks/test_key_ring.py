"""Wrapped data keys: the format's vector, key files in every form, and no secret in sight."""

from __future__ import annotations

import base64
import functools
import pathlib
import pickle

import pytest
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tierlog.errors import ConfigError, EncryptionKeyError
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.remote.tier.chunks.key_ring import KeyRing, SegmentEncryption, read_key_ring
from tierlog.runtime.machine import Machine

# A throw-away key of 1536 bits, and a ciphertext that the plugin unwrapped.
N = int(
    "b6d180b348c166fa82dba3edf7229b6f5b396f049fd4e91cfeef72305e764439dcc490ee1e07692386d60ffee5db825620c9d11a1885fb92b4cb"
    "c1f113c44efa785ec6f4ff1a0b9bb65af4683d5b7d6c377dec17c8c078e26cf8bf2c2b871eaaf2200fb3e0ca9fa4ebfdadd9c4826d8fd4fdd7c1"
    "35f71488fac116ab3d18a152e2f9d053c851be13a84eab00a73f23425652ce208ceacbe240d6ea1fea8558e4b9bf10fb5d0d2d382f2c23ece6d6"
    "ef98f51daec24cceaeb95131de2a865d4e55",
    16,
)
D = int(
    "707f2abb28221ac43c91fba60b55786065ba49de869bf576aa499df2b5ae00fdba241b2aebbf93ab10e5d8a1f9bfc1cc4e10e2633483fdf2a0de"
    "61517fe064d92c08e6550c4572af36df715653ab60da9eab1604ecbbc3a751771fec863c77599fad9dffcdbbd7d1e1116511794fc0d492fc2649"
    "246eacc17d3911f7ff9b1f2e4eb4e30d56aba0935629b1c33e3765a08d1a0d39de61f18a1e9b56d8e9f8fa77885b28dc9d29b1751c4c0b1f4df1"
    "d5745dbcc35600065782dd34ebdf7d3a1161",
    16,
)
CIPHERTEXT = base64.b64decode(
    "hpemF3ub6ZvMUtc7EG3zRgUAJAvfYNu3L4I/kMfFmkAAZGjMl09msAV2urahJCVRKTp8BnnmiD25fJOhH8NL0PvGShv+cCPUraT3u+C0VAMABG7vXuVQ"
    "O9FActfFcJjb/9Jx55V+SHTs05gwmBzRrweE6pyGse0H+RXLmaU6dWaBy7oPJV+3/wDOjYI2ilDXNHdRAtEC0rT/6K6t0PL90W5ZNi1QY6l4Yz3HczcR"
    "vJNQzoGWld+B83zRoHutMnIO"
)
AAD = bytes(range(0x20, 0x40))
# The message of 00…1f with the seed 00…3f, before RSA with a modulus of 2048 bits.
ENCODED = (
    "005b654286102b5a13209a347c319fc042e823593d4e3f15d146c1d79c15ecadaed0a020eb821596f7a858b4f6a5e8f0f78d53fcdfc0f5"
    "44b244a0b82e5999d6ae012532f43b1450aac1ca2c674cfb94d5103fc83a52e575c190cddab7b1dbad8eb632a90754e495d29f26a4f372"
    "6cb16198211f8f4a3a4c8e33fafba1e138b2334507408e428349639c61b36e3510cc1a83b9b98239c266f333ebff848ad28d39dfe9cb89"
    "a47ab3a48eee3ee82b9cc8d2008758c4398fd578d1256d7de88ee3ee24fc027b7209a90c1ef73d9c7755ebd6c43e36a7dfdecc319c82f7"
    "3b9027d0262308877b35efaab11469784a37fc7a8fb773988f7c7879807f6a0e6907f3c6"
)


def vector_key() -> RSA.RsaKey:
    return RSA.construct((N, 65537, D))


@functools.cache
def second_key() -> RSA.RsaKey:
    return RSA.generate(2048)


def encryption(key_id: str = "id", wrapped: bytes = CIPHERTEXT) -> SegmentEncryption:
    return SegmentEncryption(key_id, wrapped, AAD)


@pytest.mark.parametrize("form", ["DER", "PEM"])
def test_the_plugins_wrapping_opens(form: str) -> None:
    """If this fails, no encrypted segment can be read: the padding's hashes are not the plugin's."""
    ring = KeyRing({"id": vector_key().export_key(form, pkcs=8)})
    # A unit that the plugin decrypted, under key 00…1f, which the ciphertext wraps.
    unit = bytes.fromhex(
        "a0a1a2a3a4a5a6a7a8a9aaab9271195f20af2fcc160af5b2601fe0bd18d9377b045147426e8db667faa5b6af6e9ffe92"
    )
    assert ring.cipher(encryption()).decrypt(unit[:12], unit[12:], AAD) == b"tiered-storage chunk"


def test_a_data_key_is_unwrapped_once() -> None:
    """If this fails, every window costs an RSA operation."""
    ring = KeyRing({"id": vector_key().export_key("DER", pkcs=8)})
    assert ring.cipher(encryption()) is ring.cipher(encryption())


def test_an_unknown_id_is_named_with_the_known_ones() -> None:
    """If this fails, an operator does not learn which key to put back."""
    ring = KeyRing({"k1": vector_key().export_key("DER", pkcs=8)})
    with pytest.raises(EncryptionKeyError, match=r"'gone'.*k1"):
        ring.cipher(encryption("gone"))
    with pytest.raises(EncryptionKeyError, match=r"no encryption\.key\.pairs"):
        KeyRing({}).cipher(encryption("gone"))


@pytest.mark.parametrize("wrapped", [b"", b"short", CIPHERTEXT[:-1] + b"\0", b"\xff" * len(CIPHERTEXT)])
def test_what_the_key_does_not_open_is_a_key_error(wrapped: bytes) -> None:
    """If this fails, a wrong key is a traceback, or looks like a corrupt chunk."""
    ring = KeyRing({"id": vector_key().export_key("DER", pkcs=8)})
    with pytest.raises(EncryptionKeyError, match="'id'"):
        ring.cipher(encryption(wrapped=wrapped))


def test_key_files_that_are_none() -> None:
    """If this fails, a wrong file shows only when the first segment is read, or its content is printed."""
    short = RSA.generate(1024)
    for data, told in (
        (b"not a key: s3cret", "not an unencrypted RSA private key"),
        (b"", "not an unencrypted RSA private key"),
        (vector_key().public_key().export_key("PEM"), "public key"),
        (short.export_key("DER", pkcs=8), "1024 bits"),
    ):
        with pytest.raises(ConfigError, match=told) as caught:
            KeyRing({"k1": data})
        assert "encryption.key.pairs.k1.private.key.file" in str(caught.value)
        assert "s3cret" not in repr(caught.value.__cause__)


def test_a_ring_shows_no_key_and_does_not_travel(data: pathlib.Path) -> None:
    """If this fails, private keys end up in a log or in a Spark plan."""
    ring = KeyRing({"k1": (data / "keys" / "k1" / "private.der").read_bytes()})
    assert repr(ring) == "KeyRing(k1)"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(ring)


class Chance:
    """The bytes 00 01 02 … of every call, as in the format's vectors."""

    def secret_bytes(self, size_bytes: int) -> bytes:
        return bytes(range(size_bytes))

    def uniform(self, low: float, high: float) -> float:
        return low


class TestWriting:
    """Wrapping, and the rotation of keys."""

    def ring(self, active: str | None = "k1", machine: Machine | None = None) -> KeyRing:
        first, second = RSA.construct((N, 65537, D)), second_key()
        return KeyRing(
            {"k1": first.export_key("DER", pkcs=8), "k2": second.export_key("DER", pkcs=8)},
            machine,
            public_keys={"k1": first.public_key().export_key("PEM"), "k2": second.public_key().export_key("DER")},
            active_key_id=active,
        )

    def test_the_encoded_message_is_that_of_the_format(self) -> None:
        """If this fails, the plugin cannot open a segment that we encrypted: its OAEP message, before RSA."""
        key = RSA.generate(2048)
        ring = KeyRing(
            {"k": key.export_key("DER", pkcs=8)},
            Machine(rng=Chance()),
            public_keys={"k": key.public_key().export_key("DER")},
            active_key_id="k",
        )
        made = ring.new_segment_key()
        assert made.data_key == made.encryption.aad == bytes(range(32))
        message = pow(int.from_bytes(made.encryption.wrapped_key, "big"), key.d, key.n).to_bytes(256, "big")
        assert message.hex() == ENCODED

    def test_a_new_key_opens_again(self) -> None:
        """If this fails, what is written encrypted is lost."""
        ring = self.ring()
        made = ring.new_segment_key()
        assert made.encryption.key_id == "k1"
        sealed = AESGCM(made.data_key).encrypt(bytes(12), b"chunk", made.encryption.aad)
        assert ring.cipher(made.encryption).decrypt(bytes(12), sealed, made.encryption.aad) == b"chunk"

    def test_no_two_segments_share_a_key(self) -> None:
        """If this fails, an IV that comes twice gives away two segments' content."""
        ring = self.ring()
        made = [ring.new_segment_key() for _ in range(20)]
        assert len({key.data_key for key in made}) == len({key.encryption.aad for key in made}) == 20
        assert all(key.data_key != key.encryption.aad for key in made)

    def test_rotation_keeps_the_data_key(self) -> None:
        """If this fails, a segment is lost when its key pair is rotated."""
        old = self.ring("k1").new_segment_key()
        ring = self.ring("k2")
        moved = ring.rewrap(old.encryption)
        assert (moved.key_id, moved.aad) == ("k2", old.encryption.aad)
        assert ring.rewrap(moved) is moved
        sealed = AESGCM(old.data_key).encrypt(bytes(12), b"chunk", moved.aad)
        only_new = KeyRing({"k2": second_key().export_key("DER", pkcs=8)})
        assert only_new.cipher(moved).decrypt(bytes(12), sealed, moved.aad) == b"chunk"

    def test_a_ring_that_is_taken_meanwhile_does_not_name_the_key(self) -> None:
        """If this fails, a segment that is copied while keys are reloaded says another key than it has: it is lost."""
        other = self.ring("k2")

        class Reload(Chance):
            def secret_bytes(self, size_bytes: int) -> bytes:
                if size_bytes == 64:  # the seed of the wrapping
                    ring.take(other)
                return super().secret_bytes(size_bytes)

        ring = self.ring("k1", Machine(rng=Reload()))
        made = ring.new_segment_key()
        assert made.encryption.key_id == "k1"
        sealed = AESGCM(made.data_key).encrypt(bytes(12), b"chunk", made.encryption.aad)
        assert ring.cipher(made.encryption).decrypt(bytes(12), sealed, made.encryption.aad) == b"chunk"
        assert ring.active_key_id == "k2"

    def test_a_ring_for_reading_wraps_nothing(self) -> None:
        """If this fails, a missing encryption.key.pair.id shows as a KeyError in the middle of a copy."""
        with pytest.raises(ConfigError, match=r"encryption\.key\.pair\.id"):
            self.ring(None).new_segment_key()
        with pytest.raises(ConfigError, match="Encryption key 'k3' must be provided"):
            self.ring("k3")

    def test_halves_of_two_pairs_are_refused(self) -> None:
        """If this fails, every segment written is unreadable, and nobody knows until the first is fetched."""
        with pytest.raises(ConfigError, match="k1: the two files are not of one key pair"):
            KeyRing(
                {"k1": vector_key().export_key("DER", pkcs=8)},
                public_keys={"k1": second_key().public_key().export_key("DER")},
            )
        with pytest.raises(ConfigError, match=r"public\.key\.file: this is a private key"):
            KeyRing({}, public_keys={"k1": second_key().export_key("DER", pkcs=8)})

    def test_a_data_key_is_not_shown_and_does_not_travel(self) -> None:
        """If this fails, a segment's key ends up in a log."""
        made = self.ring(machine=Machine(rng=Chance())).new_segment_key()
        assert "x01" not in repr(made)
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(made)


class TestFiles:
    """Rings as they are configured."""

    def config(self, data: pathlib.Path, **more: str) -> StorageConfig:
        given = {
            f"encryption.key.pairs.{key_id}.{kind}.key.file": str(data / "keys" / key_id / f"{kind}.der")
            for key_id in ("k1", "k2")
            for kind in ("private", "public")
        }
        given |= {"encryption.key.pairs": "k1,k2", "encryption.enabled": "true", "encryption.key.pair.id": "k2"}
        return read_storage_config(given | {name.replace("__", "."): value for name, value in more.items()})

    def test_a_writers_ring(self, data: pathlib.Path) -> None:
        """If this fails, a broker that encrypts cannot start."""
        ring = read_key_ring(self.config(data), Machine(), writing=True)
        assert ring.key_ids == ("k1", "k2")
        assert ring.new_segment_key().encryption.key_id == "k2"

    def test_a_reader_needs_no_public_key(self, data: pathlib.Path) -> None:
        """If this fails, a data engineer without the public keys' files cannot read."""
        config = self.config(data, encryption__key__pairs__k1__public__key__file="/none")
        assert read_key_ring(config, Machine()).active_key_id is None
        with pytest.raises(ConfigError, match=r"pairs\.k1\.public\.key\.file: /none"):
            read_key_ring(config, Machine(), writing=True)
        plain = self.config(data, encryption__enabled="false")
        assert read_key_ring(plain, Machine(), writing=True).active_key_id is None
