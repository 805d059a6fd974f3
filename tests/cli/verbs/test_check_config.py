"""``tierlog check-config`` over a folder, over a real S3 server, and over what an operator gets wrong."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.support.servers import StoreServer

PLUGIN = "io.aiven.kafka.tieredstorage.storage"


def run(config: pathlib.Path, *more: str) -> tuple[int, str, str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, "-c", "from tierlog.cli import main; main()", "check-config", "--config", str(config), *more],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def write(folder: pathlib.Path, **keys: str) -> pathlib.Path:
    path = folder / "server.properties"
    path.write_text("".join(f"rsm.config.{key.replace('__', '.')}={value}\n" for key, value in keys.items()))
    return path


def s3_keys(server: StoreServer) -> dict[str, str]:
    return {
        "chunk__size": "4194304",
        "storage__backend__class": f"{PLUGIN}.s3.S3Storage",
        "storage__s3__bucket__name": server.url.removeprefix("s3://"),
        "storage__s3__region": "us-east-1",
        "storage__s3__endpoint__url": server.options["store.endpoint"],
        "storage__s3__path__style__access__enabled": "true",
        "storage__aws__access__key__id": server.options["store.access_key_id"],
        "storage__aws__secret__access__key": server.options["store.secret_access_key"],
        "storage__s3__multipart__upload__part__size": str(5 << 20),
        "key__prefix": "check/",
    }


def test_a_folder(tmp_path: pathlib.Path) -> None:
    """If this fails, the first thing that an operator tries does not work, or leaves its traces."""
    root = tmp_path / "root"
    root.mkdir()
    config = write(
        tmp_path,
        chunk__size="100",
        storage__backend__class=f"{PLUGIN}.filesystem.FileSystemStorage",
        storage__root=str(root),
        key__prefix="some/tier-",
    )
    code, out, err = run(config)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[-1] == "all is well"
    steps = [line.removeprefix("ok").split(":")[0].strip() for line in lines[:-1]]
    wanted = ["configuration", "store", "identity", "write", "find", "read", "range", "list", "multipart", "abort"]
    assert steps == [*wanted, "delete", "traits"]
    assert f"user {os.geteuid()}" in out
    assert list(root.rglob("*")) == []


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    """If this fails, a full or missing disk is a traceback."""
    config = write(
        tmp_path,
        chunk__size="100",
        storage__backend__class=f"{PLUGIN}.filesystem.FileSystemStorage",
        storage__root=str(tmp_path / "none"),
    )
    code, out, err = run(config)
    assert code == 3
    assert "none" in err
    assert "Traceback" not in out + err


def test_a_wrong_file(tmp_path: pathlib.Path) -> None:
    """If this fails, a misspelt key is found by a broker at night."""
    code, _, err = run(write(tmp_path, chunk__sise="100"))
    assert code == 2
    assert "chunk.size" in err
    assert run(tmp_path / "none.properties")[0] == 2


@pytest.mark.server
class TestS3:
    """A real server."""

    def test_all_is_well(self, s3: StoreServer, tmp_path: pathlib.Path) -> None:
        """If this fails, a good configuration is doubted, or a secret is printed."""
        code, out, err = run(write(tmp_path, **s3_keys(s3)), "--output", "json")
        assert (code, err) == (0, "")
        found = {line["step"]: line for line in map(json.loads, out.splitlines())}
        assert all(line["passed"] for line in found.values())
        assert "access key tierlog" in found["identity"]["told"]
        assert s3.options["store.secret_access_key"] not in out
        assert "checksums of writes crc32c, checked by the store" in found["traits"]["told"]
        assert "conditional puts" in found["traits"]["told"]
        assert "deletes in batches" in found["traits"]["told"]

    @pytest.mark.parametrize(
        ("change", "told", "advice"),
        [
            ({"storage__aws__secret__access__key": "s3cret"}, "SignatureDoesNotMatch", "secret key"),
            ({"storage__aws__access__key__id": "nobody"}, "InvalidAccessKeyId", "right to write"),
            ({"storage__s3__endpoint__url": "http://127.0.0.1:9"}, "127.0.0.1:9", "nobody answers"),
            ({"storage__s3__endpoint__url": "http://tierlog.invalid"}, "tierlog.invalid", "nobody answers"),
        ],
    )
    def test_what_an_operator_gets_wrong(
        self, s3: StoreServer, tmp_path: pathlib.Path, change: dict[str, str], told: str, advice: str
    ) -> None:
        """If this fails, an operator reads that it failed, and not what to do."""
        config = write(tmp_path, **{**s3_keys(s3), "storage__s3__api__call__timeout": "2000", **change})
        code, out, err = run(config)
        assert code == 3
        assert err == ""
        failed = out.splitlines()[-3:]
        assert failed[0].startswith("FAILED write: ")
        assert told in failed[0]
        assert advice in failed[1]
        assert failed[2] == "1 steps failed"
        assert "s3cret" not in out
        assert "Traceback" not in out

    def test_the_prefix_is_masked(self, s3: StoreServer, tmp_path: pathlib.Path) -> None:
        """If this fails, what the operator wants hidden is in the terminal's log."""
        keys = {**s3_keys(s3), "key__prefix": "hidden-place/", "key__prefix__mask": "true"}
        code, out, err = run(write(tmp_path, **keys))
        assert (code, err) == (0, "")
        assert "hidden-place" not in out
        assert "<prefix>/" in out
