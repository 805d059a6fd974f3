"""An S3-like server over a folder in memory, which answers every request after a while: ``python -m bench.slow_store``.

On uvloop, without a copy of what it sends, so that it costs little beside what reads from it. Two ports: one that
waits, one that does not. GET and HEAD of objects with or without a range, in one bucket by path; no listing, no
signatures checked. ``GET /-/counts`` tells what was asked since it was last told: requests, bytes, most at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast
from urllib.parse import unquote

import uvloop

from bench.side_by_side import ROOT

BUCKET = "tier"
_RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d*)", re.IGNORECASE)
_DATE = "Tue, 01 Jan 2030 00:00:00 GMT"


@dataclass
class Counts:
    """Since they were last told."""

    requests: int = 0
    sent_bytes: int = 0
    under_way: int = 0
    at_once: int = 0


class Answering(asyncio.Protocol):
    """One connection."""

    def __init__(self, objects: dict[str, memoryview], counts: Counts, wait_seconds: float) -> None:
        self._objects, self._counts, self._wait_seconds = objects, counts, wait_seconds
        self._loop = asyncio.get_running_loop()
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head, self._received = self._received[: end + 2], self._received[end + 4 :]
            verb, target, _ = head.split(b" ", 2)
            if target == b"/-/counts":
                self._tell_counts()
                continue
            counts = self._counts
            counts.requests += 1
            counts.under_way += 1
            counts.at_once = max(counts.at_once, counts.under_way)
            path = unquote(target.partition(b"?")[0].decode())
            if self._wait_seconds:
                self._loop.call_later(self._wait_seconds, self._answer, verb, path, _RANGE.search(head))
            else:
                self._answer(verb, path, _RANGE.search(head))

    def _tell_counts(self) -> None:
        counts = self._counts
        told = {"requests": counts.requests, "bytes": counts.sent_bytes, "at once": counts.at_once}
        counts.requests = counts.sent_bytes = counts.at_once = 0
        body = json.dumps(told).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    def _answer(self, verb: bytes, path: str, asked: re.Match[bytes] | None) -> None:
        self._counts.under_way -= 1
        if self._transport.is_closing():
            return
        whole = self._objects.get(path)
        if whole is None or verb not in (b"GET", b"HEAD"):
            body = b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"
            self._send("404 Not Found", "", len(body), memoryview(body if verb == b"GET" else b""))
            return
        view, status, more = whole, "200 OK", ""
        if asked is not None:
            start = int(asked[1])
            end = min(int(asked[2]) if asked[2] else len(whole) - 1, len(whole) - 1)
            view, status = whole[start : end + 1], "206 Partial Content"
            more = f"content-range: bytes {start}-{end}/{len(whole)}\r\n"
        self._send(status, more, len(view), view if verb == b"GET" else view[:0])

    def _send(self, status: str, more: str, length: int, body: memoryview) -> None:
        kept = f'etag: "1"\r\nlast-modified: {_DATE}\r\naccept-ranges: bytes\r\ncontent-type: binary/octet-stream\r\n'
        self._transport.write(f"HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{kept}{more}\r\n".encode())
        if body:
            self._transport.write(body)
            self._counts.sent_bytes += len(body)


def objects_below(folder: pathlib.Path) -> dict[str, memoryview]:
    """Path of the request to the bytes."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {f"/{BUCKET}/{path.relative_to(folder).as_posix()}": memoryview(path.read_bytes()) for path in files}


async def serve(objects: dict[str, memoryview], wait_seconds: float) -> None:
    """Until stdin ends; the ports as JSON on stdout."""
    loop, counts, ports = asyncio.get_running_loop(), Counts(), {}
    for name, seconds in (("slow", wait_seconds), ("quick", 0.0)):
        server = await loop.create_server(
            lambda seconds=seconds: Answering(objects, counts, seconds), "127.0.0.1", 0, backlog=4096
        )
        ports[name] = server.sockets[0].getsockname()[1]
    print(json.dumps(ports), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@dataclass(frozen=True)
class SlowStore:
    """A server that runs.

    Args:
        slow: Endpoint that waits.
        quick: Endpoint that does not.
    """

    slow: str
    quick: str

    def counts(self) -> dict[str, int]:
        """Requests, bytes and most at once, of both ports, since they were last asked for."""
        with urllib.request.urlopen(f"{self.quick}/-/counts", timeout=60) as answer:
            told: dict[str, int] = json.load(answer)
        return told

    def keys(self, endpoint: str) -> dict[str, str]:
        """Keys of a storage manager that reads from this store."""
        return {
            "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
            "storage.s3.bucket.name": BUCKET,
            "storage.s3.region": "us-east-1",
            "storage.s3.endpoint.url": endpoint,
            "storage.s3.path.style.access.enabled": "true",
            "storage.aws.access.key.id": "nobody",
            "storage.aws.secret.access.key": "nothing",
            "store.probe.enabled": "false",
        }


@contextlib.contextmanager
def running(folder: pathlib.Path, wait_ms: float) -> Iterator[SlowStore]:
    """A server over the folder as it is now, in a process of its own."""
    command = [sys.executable, "-m", "bench.slow_store", str(folder), "--wait-ms", str(wait_ms)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ports = json.loads(process.stdout.readline())
        yield SlowStore(*(f"http://127.0.0.1:{ports[name]}" for name in ("slow", "quick")))
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--wait-ms", type=float, default=200.0)
    arguments = parser.parse_args()
    uvloop.run(serve(objects_below(arguments.folder), arguments.wait_ms / 1000))


if __name__ == "__main__":
    main()
