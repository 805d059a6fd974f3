"""The bare libraries that chunks of a segment are made with: libzstd's ZSTD_compress2, and libcrypto's EVP calls.

By their names in C, through ctypes: a call costs a microsecond, a chunk of 4 MiB a millisecond and more.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_LEVEL_PARAMETER = 100
_GET_TAG, _SET_TAG = 0x10, 0x11
TAG_BYTES = 16


@functools.cache
def _library(name: str) -> ctypes.CDLL:
    found = ctypes.util.find_library(name)
    if found is None:
        raise FileNotFoundError(f"lib{name} is needed to measure against it")
    loaded = ctypes.CDLL(found)
    if name == "zstd":
        loaded.ZSTD_versionString.restype = ctypes.c_char_p
    else:
        loaded.OpenSSL_version.restype = ctypes.c_char_p
    return loaded


def versions() -> dict[str, str]:
    return {
        "libzstd": _library("zstd").ZSTD_versionString().decode(),
        "libcrypto": _library("crypto").OpenSSL_version(0).decode(),
    }


def _at(array: Bytes, position: int = 0) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data + position)


class BareZstd:
    """Compression by one reused context."""

    def __init__(self, level: int) -> None:
        self._zstd = _library("zstd")
        self._zstd.ZSTD_createCCtx.restype = self._zstd.ZSTD_createDCtx.restype = ctypes.c_void_p
        self._zstd.ZSTD_compress2.restype = self._zstd.ZSTD_decompressDCtx.restype = ctypes.c_size_t
        self._writing = ctypes.c_void_p(self._zstd.ZSTD_createCCtx())
        self._reading = ctypes.c_void_p(self._zstd.ZSTD_createDCtx())
        assert self._zstd.ZSTD_CCtx_setParameter(self._writing, _LEVEL_PARAMETER, level) >= 0

    def compress(self, data: Bytes, out: Bytes) -> int:
        size = ctypes.c_size_t(len(out)), ctypes.c_size_t(len(data))
        written = int(self._zstd.ZSTD_compress2(self._writing, _at(out), size[0], _at(data), size[1]))
        assert written <= len(out)
        return written

    def decompress(self, data: Bytes, out: Bytes) -> int:
        size = ctypes.c_size_t(len(out)), ctypes.c_size_t(len(data))
        written = int(self._zstd.ZSTD_decompressDCtx(self._reading, _at(out), size[0], _at(data), size[1]))
        assert written <= len(out)
        return written

    def __del__(self) -> None:
        self._zstd.ZSTD_freeCCtx(self._writing)
        self._zstd.ZSTD_freeDCtx(self._reading)


class BareGcm:
    """AES-256-GCM with one key, by one reused context."""

    def __init__(self, key: bytes, aad: bytes) -> None:
        self._crypto = _library("crypto")
        self._crypto.EVP_CIPHER_CTX_new.restype = self._crypto.EVP_aes_256_gcm.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._crypto.EVP_CIPHER_CTX_new())
        self._key, self._aad = key, aad
        self._begin(ctypes.c_void_p(self._crypto.EVP_aes_256_gcm()), bytes(12), encrypt=True)

    def _begin(self, cipher: ctypes.c_void_p | None, iv: bytes, *, encrypt: bool) -> None:
        assert self._crypto.EVP_CipherInit_ex(self._context, cipher, None, self._key, iv, int(encrypt)) == 1

    def _run(self, iv: bytes, data: Bytes, out: Bytes, size: int, *, encrypt: bool) -> None:
        done = ctypes.c_int()
        self._begin(None, iv, encrypt=encrypt)
        update = self._crypto.EVP_CipherUpdate
        assert update(self._context, None, ctypes.byref(done), self._aad, len(self._aad)) == 1
        assert update(self._context, _at(out), ctypes.byref(done), _at(data), size) == 1
        assert done.value == size

    def encrypt(self, iv: bytes, data: Bytes, out: Bytes) -> int:
        """Ciphertext, then the tag."""
        size, done = len(data), ctypes.c_int()
        self._run(iv, data, out, size, encrypt=True)
        assert self._crypto.EVP_CipherFinal_ex(self._context, _at(out, size), ctypes.byref(done)) == 1
        assert self._crypto.EVP_CIPHER_CTX_ctrl(self._context, _GET_TAG, TAG_BYTES, _at(out, size)) == 1
        return size + TAG_BYTES

    def decrypt(self, iv: bytes, data: Bytes, out: Bytes) -> int:
        size, done = len(data) - TAG_BYTES, ctypes.c_int()
        self._run(iv, data, out, size, encrypt=False)
        assert self._crypto.EVP_CIPHER_CTX_ctrl(self._context, _SET_TAG, TAG_BYTES, _at(data, size)) == 1
        assert self._crypto.EVP_CipherFinal_ex(self._context, _at(out, size), ctypes.byref(done)) == 1
        return size

    def __del__(self) -> None:
        self._crypto.EVP_CIPHER_CTX_free(self._context)
