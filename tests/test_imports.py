"""Importing: the arrows between the rooms, and what an import costs and needs."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from tests.support.checkout import ROOT, needs_checkout, run_tool

FILE_SYSTEM = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
#: The native modules over numpy or the codecs; the one of buffers is there with the machine, and loads nothing.
_NATIVE = tuple(f"tierlog._native.{name}" for name in ("batches", "chunks", "codecs", "decoding", "indexes"))
#: What every configured manager needs.
_MANAGER = ("numpy", "pydantic", "prometheus_client", *_NATIVE)
HEAVY = ("pyspark", "pandas", "pyarrow", "obstore", "numpy", "typer", "rich", *_NATIVE)
#: Beside these, what a broker pays for only once it configures a storage manager, or writes to a bucket with it.
HEAVY_FOR_BROKERS = (
    *HEAVY,
    "pydantic",
    "prometheus_client",
    "botocore",
    "aiohttp",
    "asyncio",
    "cryptography",
    "Crypto",
)
#: What a storage manager over a folder does without altogether.
HEAVY_FOR_FOLDERS = tuple(name for name in HEAVY_FOR_BROKERS if name not in _MANAGER)


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after the statement."""
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@needs_checkout
def test_the_arrows_hold() -> None:
    """Otherwise a room reaches up, and nobody can use or test it alone any more (the map is ARCHITECTURE.md)."""
    run_tool("lint-imports", "--no-cache")


@needs_checkout
def test_no_module_needs_itself() -> None:
    """Otherwise two modules can only be read, tested and changed together, whatever hides their circle from Python."""
    run_tool("lint-imports", "--no-cache", "--config", "tests/import_circles.toml")


@pytest.mark.parametrize("package", ["tierlog", "pyspark_tierlog"])
def test_an_import_is_light(package: str) -> None:
    """Spark imports every data source of the environment to look one up: a heavy or failing import breaks them all."""
    loaded = loaded_by(f"import {package}")
    assert package in loaded
    assert not [name for name in HEAVY if name in loaded]


@pytest.mark.parametrize("name", ["TieredStorageManager", "RemoteStorageManager", "LogSegmentData", "IndexType"])
def test_the_public_path_for_brokers_is_light(name: str) -> None:
    """A broker names its storage manager when it reads its configuration: that must not cost it a second."""
    loaded = loaded_by(f"from tierlog.remote import {name}")
    assert not [heavy for heavy in HEAVY_FOR_BROKERS if heavy in loaded]


def test_a_storage_manager_over_a_folder_loads_no_clients_of_buckets(tmp_path: pathlib.Path) -> None:
    """Memory and start of every broker would pay for Arrow, two HTTP clients and two libraries of ciphers."""
    configs = {"storage.backend.class": FILE_SYSTEM, "storage.root": str(tmp_path), "chunk.size": "1048576"}
    statement = f"from tierlog.remote import TieredStorageManager as M\nm = M()\nm.configure({configs})\nm.close()"
    loaded = loaded_by(statement)
    assert not [heavy for heavy in HEAVY_FOR_FOLDERS if heavy in loaded]


def test_the_public_path_for_brokers_has_every_name_of_the_interface() -> None:
    """Otherwise an embedder has to know rooms that move."""
    from tierlog import remote
    from tierlog.remote import api

    assert set(api.__all__) <= set(remote.__all__)
    for name in remote.__all__:
        assert getattr(remote, name) is not None
    assert set(remote.__all__) <= set(dir(remote))
    with pytest.raises(AttributeError, match="no_such_name"):
        remote.no_such_name  # noqa: B018


def test_spark_can_see_the_package() -> None:
    """Spark looks data sources up with pkgutil, which does not see what an editable install's finder hides."""
    code = "import pkgutil, sys; sys.exit('pyspark_tierlog' not in {found.name for found in pkgutil.iter_modules()})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_name_of_the_front_page_is_there() -> None:
    """Otherwise ``from tierlog import read``, which the README shows, fails at its first use."""
    import tierlog

    for name in tierlog.__all__:
        assert getattr(tierlog, name) is not None
    with pytest.raises(AttributeError):
        tierlog.no_such_name  # noqa: B018


def test_a_missing_native_module_is_an_import_error() -> None:
    """A quiet fall-back to Python would make a broken install look like a slow day."""
    code = (
        "import sys\n"
        "for name in ('batches', 'decoding', 'indexes', 'checksums', 'chunks', 'codecs'):\n"
        "    sys.modules['tierlog._native.' + name] = None\n"
        "try:\n"
        "    import tierlog.records\n"
        "    tierlog.records.decode\n"
        "except ImportError:\n"
        "    sys.exit(0)\n"
        "sys.exit('imported without its native half')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_checkout
def test_each_room_says_what_it_is() -> None:
    """Each room opens with what it is, why, and what does not belong: the next reader has no other guide."""
    silent = []
    for path in sorted((ROOT / "engine" / "tierlog").rglob("__init__.py")):
        text = path.read_text()
        if not text.startswith('"""') or "belongs" not in text.split('"""')[1].lower():
            silent.append(str(path.relative_to(ROOT)))
    assert not silent


def test_what_is_public_is_reachable() -> None:
    """A name that needs an import of its own is found by whoever reads the source alone; one by chance is relied on."""
    code = (
        "import tierlog; tierlog.upkeep, tierlog.scan, tierlog.broker, tierlog.aio; "
        "shown = {name for name in dir(tierlog) if not name.startswith('__')}; "
        "print(shown == set(tierlog.__all__) - {'__version__'}, "
        "all(hasattr(tierlog, name) for name in tierlog.__all__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
