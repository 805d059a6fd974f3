"""zstd's frames are those of a version of libzstd: with the plugin's, ours are the plugin's, byte for byte.

The plugin carries 1.5.7 (zstd-jni 1.5.7-4), and so do our wheels (``.ci/newer-zstd.sh``). A source build takes the
system's, whose frames every reader reads and which may be others.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.support.checkout import ROOT
from tests.support.golden import config_of
from tierlog._native import codecs
from tierlog.remote.tier.tier_paths import open_tier
from tierlog.runtime.stores.local.store import LocalStore

CODEC_ZSTD = 4
PLUGIN_VERSION = "1.5.7"
LEVEL = 3
SCRIPT = ROOT / ".ci" / "newer-zstd.sh"
#: The system's: the source compresses with these too.
OTHER_CODECS = ("-lsnappy", "-llz4", "-ldeflate")


def plugin_chunks(fixtures: pathlib.Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Where, what the plugin stored, and what that is uncompressed: every chunk of its zstd run, without encryption."""
    run = fixtures / "zstd"
    store = LocalStore(str(run / "objects"))
    with open_tier(str(run / "objects"), layout="aiven", config=config_of(run)) as tier:
        for segment in tier.iter_segments():
            assert segment.chunk_index is not None
            stored = bytes(store.fetch(segment.log.key))
            for view in segment.chunk_index.views(0, segment.size_bytes):
                at, size = int(view["transformed_position"]), int(view["transformed_size"])
                out = bytearray(int(view["original_size"]))
                codecs.decompress_into(stored[at : at + size], CODEC_ZSTD, out)
                yield f"{segment.name} @ {at}", stored[at : at + size], bytes(out)


def native_compress(data: bytes) -> bytes:
    out = bytearray(codecs.compress_bound(len(data)))
    return bytes(out[: codecs.compress_into(data, out, level=LEVEL)])


def require_equal(fixtures: pathlib.Path, compress: Callable[[bytes], bytes]) -> None:
    count = 0
    for where, stored, original in plugin_chunks(fixtures):
        assert compress(original) == stored, where
        count += 1
    assert count > 40


def test_the_loaded_library_writes_the_plugins_frames(fixtures: pathlib.Path) -> None:
    """A bucket that two writers share must not show which of them wrote a segment; wheels are tested with it."""
    loaded = codecs.library_version(CODEC_ZSTD)
    if loaded != PLUGIN_VERSION:
        pytest.skip(f"libzstd {loaded} is loaded, the plugin carries {PLUGIN_VERSION}: frames of two versions differ")
    require_equal(fixtures, native_compress)


@pytest.mark.slow
def test_the_plugins_library_under_our_core_writes_its_frames(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The same where the system's libzstd is another: the core's own source over the libzstd that wheels carry."""
    made = ROOT / "build" / "zstd"
    if not (made / "libzstd.a").exists():
        made = tmp_path
        done = subprocess.run(
            ["bash", str(SCRIPT), sys.executable, str(made)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"libzstd {PLUGIN_VERSION} cannot be built here: {done.stderr[-200:]}")
    (header,) = made.glob("*/src/c/zstd/lib/zstd.h")
    library = tmp_path / "compress.so"
    core = ROOT / "cext" / "core"
    command = [
        os.environ.get("CC", "cc"),
        "-O2",
        "-shared",
        "-fPIC",
        f"-I{core}",
        f"-I{core}/include",
        f"-I{header.parent}",
    ]
    subprocess.run(
        [*command, "-o", library, core / "codec" / "compress.c", made / "libzstd.a", *OTHER_CODECS], check=True
    )
    native = ctypes.CDLL(str(library))
    context = ctypes.c_void_p()
    assert native.tl_compressor_create(ctypes.byref(context)) == 0

    def compress(data: bytes) -> bytes:
        out = ctypes.create_string_buffer(len(data) + (len(data) >> 8) + 1024)
        size, fault = ctypes.c_size_t(), (ctypes.c_int64 * 5)()
        given = ctypes.c_size_t(len(data)), out, ctypes.c_size_t(len(out))
        status = native.tl_compress(context, LEVEL, data, *given, ctypes.byref(size), ctypes.byref(fault))
        assert status == 0
        return out.raw[: size.value]

    try:
        require_equal(fixtures, compress)
    finally:
        native.tl_compressor_destroy(context)
