"""Packages that only some need: nothing else asks for them, and the error for a missing one says what to install."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tomllib

import pytest

from tests.support.checkout import ROOT, needs_checkout
from tierlog._extras import EXTRAS, is_there, require_extra
from tierlog.errors import ConfigError

#: Names that are imported, of all that is optional: the extras', and those that only tests and benchmarks take.
#: Without pandas, which pyarrow asks for by itself.
OPTIONAL = sorted({name for names in EXTRAS.values() for name in names} - {"pandas"} | {"zstandard", "lz4", "cramjam"})
DISTRIBUTIONS = {
    "aiohttp": "aiohttp",
    "botocore": "botocore",
    "google.auth": "google-auth",
    "urllib3": "urllib3",
    "cryptography": "cryptography",
    "Crypto": "pycryptodome",
    "confluent_kafka": "confluent-kafka",
    "kio": "kio",
    "pandas": "pandas",
    "pyspark": "pyspark",
    "scramp": "scramp",
    "uvloop": "uvloop",
}
WITHOUT = f"import sys\nfor name in {OPTIONAL!r}: sys.modules[name] = None\n"
FILE_SYSTEM = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"


def run_without(statements: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process where none of the optional packages can be imported."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT + statements, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def error_of(statements: str) -> str:
    """The text of the ConfigError that the statements end with."""
    code = "from tierlog.errors import ConfigError\ntry:\n"
    code += "".join(f"    {line}\n" for line in statements.splitlines())
    code += "except ConfigError as error:\n    assert error.__cause__ is None\n    print(error)\n    sys.exit(0)\n"
    code += "sys.exit('no error')\n"
    done = run_without(code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_is_imported_without_any_extra() -> None:
    """One import at the top of a module, and an install without the extra is broken for everybody. The servers'
    rooms all need the extra ``server`` or ``sidecar``; whoever begins one asks for it first.
    """
    code = (
        "import importlib, pkgutil, tierlog\n"
        "names = [module.name for module in pkgutil.iter_modules(tierlog.__path__, 'tierlog.')]\n"
        "for name in set(names) - {'tierlog.broker', 'tierlog.serving', 'tierlog.sidecar', 'tierlog.__main__'}:\n"
        "    found = importlib.import_module(name)\n"
        "    for module in pkgutil.walk_packages(getattr(found, '__path__', ()), name + '.'):\n"
        "        if '__main__' not in module.name.split('.'):\n"
        "            importlib.import_module(module.name)\n"
    )
    done = run_without(code)
    assert done.returncode == 0, done.stderr


def test_a_folder_is_read_without_any_extra(data: pathlib.Path) -> None:
    """A reader of a broker's disk installs no client of a cloud and no cipher."""
    log_dir = str(data / "main-plain" / "local-before" / "broker1")
    code = (
        f"import tierlog\nfor where in {[log_dir, str(data / 'main-plain' / 'objects')]!r}:\n"
        "    print(sum(batch.num_rows for batch in tierlog.read(where, 'fx-txn')) > 0)\n"
    )
    done = run_without(code)
    assert done.stdout.split() == ["True", "True"], done.stderr
    done = run_without("from tierlog.cli import main\nmain()\n", "ls", log_dir)
    assert "fx-txn" in done.stdout, done.stderr


def test_a_broker_keeps_plain_and_compressed_segments_in_a_folder_without_any_extra(
    data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Compression is the core's: it needs no package."""
    folder = data / "main-plain" / "local-before" / "broker1" / "fx-txn-0"
    configs = {"storage.backend.class": FILE_SYSTEM, "storage.root": str(tmp_path), "chunk.size": "16384"}
    code = (
        "from dataclasses import replace\n"
        "from tierlog.remote import RemoteLogSegmentState, TieredStorageManager, closed_segments\n"
        f"manager = TieredStorageManager()\nmanager.configure({configs | {'compression.enabled': 'true'}!r})\n"
        f"metadata, files = next(closed_segments({str(folder)!r}))\n"
        "custom = manager.copy_log_segment_data(metadata, files)\n"
        "done = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom_metadata=custom)\n"
        "with manager.fetch_log_segment(done, 0) as stream:\n"
        "    print(len(stream.read()) == metadata.segment_size_in_bytes)\n"
        "manager.close()\n"
    )
    done = run_without(code)
    assert done.stdout.split() == ["True"], done.stderr


_OPEN = "from tierlog.runtime.stores.store_urls import open_store\n"
_KEYS = "{'store.region': 'us-east-1', 'store.access_key_id': 'a', 'store.secret_access_key': 'b'}"
_PAIR = "encryption.key.pairs.k"
_KEY_PAIR = {"encryption.key.pairs": "k", f"{_PAIR}.private.key.file": "/x", f"{_PAIR}.public.key.file": "/x"}
_AZURE = "{'store.account_name': 'a', 'store.account_key': 'YQ=='}"


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (f"{_OPEN}open_store('s3://b/p', {_KEYS}).put('k', b'')", "s3://b/p: writing there %s[s3]'"),
        (f"{_OPEN}open_store('gs://b', {{'store.skip_signature': 'true'}}).put('k', b'')", "writing there %s[gcs]'"),
        (f"{_OPEN}open_store('az://c', {_AZURE}).put('k', b'')", "az://c: writing there %s[azure]'"),
        (
            f"import os\nos.environ['AWS_PROFILE'] = 'x'\n{_OPEN}open_store('s3://b')",
            "AWS credentials: the profile x %s[s3]'",
        ),
        (
            f"from tierlog import open_tier\nopen_tier('DATA', config={_KEY_PAIR})",
            "encryption.key.pairs %s[encryption]'",
        ),
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(
    statements: str, expected: str, data: pathlib.Path
) -> None:
    """A traceback of imports tells a data engineer nothing."""
    text = error_of(statements.replace("DATA", str(data / "main-plain" / "objects")))
    assert expected % "needs packages that are not installed: pip install 'tierlog" in text
    assert "\n" not in text


def test_the_command_says_it_in_one_line_too() -> None:
    """And ends as for every other fault of the configuration."""
    code = "import os\nos.environ['AWS_PROFILE'] = 'x'\nfrom tierlog.cli import main\nmain()\n"
    done = run_without(code, "ls", "s3://bucket/prefix")
    assert done.returncode == 2
    assert "pip install 'tierlog[s3]'" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_spark_is_asked_for_in_one_line(data: pathlib.Path) -> None:
    """--spark without PySpark is a package to install, not a traceback of imports."""
    code = "from tierlog.cli import main\nmain()\n"
    done = run_without(code, "verify", str(data / "main-plain" / "objects"), "--spark", "local[1]")
    assert (done.returncode, done.stdout) == (2, "")
    told = "tierlog: --spark needs packages that are not installed: pip install 'tierlog[spark]'\n"
    assert done.stderr == told


def test_what_is_there_is_found_without_importing_it() -> None:
    """Asking for an extra must not cost what leaving it out saves."""
    code = "from tierlog._extras import is_there\nprint(is_there('botocore'), 'botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
    assert not is_there("no_such_package")
    assert not is_there("no_such_package.module")
    for extra in EXTRAS:
        require_extra(extra, "this test")


def test_an_unreadable_answer_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers that catch what they can mend by configuration catch this."""
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(ConfigError, match=r"^this needs packages that are not installed: pip install 'tierlog\[s3\]'$"):
        require_extra("s3", "this")


@needs_checkout
def test_extras_are_those_of_the_project() -> None:
    """A text that names an extra which brings something else sends people in circles."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    given = {
        extra: {requirement.partition(">")[0].partition("[")[0] for requirement in requirements}
        for extra, requirements in project["optional-dependencies"].items()
    }
    # The sidecar's brings other extras too, which are asked for where they are needed.
    assert {extra: {DISTRIBUTIONS[name] for name in names} for extra, names in EXTRAS.items()} == {
        extra: given[extra] - {"tierlog"} for extra in EXTRAS
    }
    whole = project["optional-dependencies"]["all"]
    assert whole == [f"tierlog[{','.join(extra for extra in given if extra not in ('dev', 'all'))}]"]
    assert not set(DISTRIBUTIONS.values()) & {requirement.partition(">")[0] for requirement in project["dependencies"]}
