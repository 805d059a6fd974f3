"""Wrapped data keys: the format's vector, key files in every form, and no secret in sight."""

from __future__ import annotations

import base64
import pathlib
import pickle

import pytest
from Crypto.PublicKey import RSA

from tierlog.errors import ConfigError, EncryptionKeyError
from tierlog.remote.storage.key_ring import KeyRing
from tierlog.remote.storage.segment import SegmentEncryption

# Section 20.5 of the object format: a throw-away key of 1536 bits, and a ciphertext that the plugin unwrapped.
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


def vector_key() -> RSA.RsaKey:
    return RSA.construct((N, 65537, D))


def encryption(key_id: str = "id", wrapped: bytes = CIPHERTEXT) -> SegmentEncryption:
    return SegmentEncryption(key_id, wrapped, AAD)


@pytest.mark.parametrize("form", ["DER", "PEM"])
def test_the_plugins_wrapping_opens(form: str) -> None:
    """If this fails, no encrypted segment can be read: the padding's hashes are not the plugin's."""
    ring = KeyRing({"id": vector_key().export_key(form, pkcs=8)})
    # Section 20.4: a unit that the plugin decrypted, under key 00…1f, which the ciphertext wraps.
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
