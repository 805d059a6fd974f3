"""`tierlog sidecar` as a process, and a client of its protocol that is written from the protocol's page alone."""

from __future__ import annotations

import contextlib
import json
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tests.support.closed_segments import ClosedSegment
from tests.support.command import environment
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata

START_SECONDS = 30.0
STOP_SECONDS = 40.0
OK, NOT_FOUND, RETRIABLE, FAILED, REFUSED, CONFIGURATION, STOPPING = range(7)
HELLO, COPY, FETCH_RANGE, FETCH_INDEX, DELETE, HEALTH, METRICS = range(7)
INDEX_TYPES = [
    IndexType.OFFSET,
    IndexType.TIMESTAMP,
    IndexType.PRODUCER_SNAPSHOT,
    IndexType.TRANSACTION,
    IndexType.LEADER_EPOCH,
]


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def blob(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def segment_bytes(metadata: RemoteLogSegmentMetadata) -> bytes:
    partition = metadata.topic_id_partition
    epochs = sorted(metadata.segment_leader_epochs.items())
    return b"".join(
        [
            partition.topic_id.raw + text(partition.topic) + struct.pack(">i", partition.partition),
            metadata.remote_log_segment_id.id.raw,
            struct.pack(">qqqiqi", metadata.start_offset, metadata.end_offset, metadata.max_timestamp_ms,
                        metadata.broker_id, metadata.event_timestamp_ms, metadata.segment_size_in_bytes),
            struct.pack(">bbi", metadata.state.value, metadata.txn_idx_empty, len(epochs)),
            b"".join(struct.pack(">iq", epoch, start) for epoch, start in epochs),
            blob(metadata.custom_metadata),
        ]
    )  # fmt: skip


class SidecarError(Exception):
    """An answer with another status than OK."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


class SidecarClient:
    """One connection, which has said hello."""

    def __init__(self, path: str, *, digest: bytes | None = None, greets: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(30)
        try:
            self.socket.connect(path)
            if greets:
                self.hello(digest=digest)
        except BaseException:
            self.socket.close()
            raise

    def hello(self, lowest: int = 1, highest: int = 1, digest: bytes | None = None) -> tuple[int, str, int]:
        body = struct.pack(">ihhi", 0x544C5343, lowest, highest, 1) + blob(digest)
        answer = self.call(HELLO, body)
        (version,), (size,) = struct.unpack_from(">h", answer), struct.unpack_from(">h", answer, 2)
        return version, answer[4 : 4 + size].decode(), struct.unpack_from(">i", answer, 4 + size)[0]

    def send(self, kind: int, body: bytes = b"") -> None:
        self.socket.sendall(struct.pack(">ib", 1 + len(body), kind) + body)

    def receive(self) -> bytes:
        """The body of the next answer. Raises SidecarError; EOFError: the connection has ended."""
        (size,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(size)
        if data[0]:
            (length,) = struct.unpack_from(">h", data, 1)
            raise SidecarError(data[0], data[3 : 3 + length].decode())
        return data[1:]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = self.socket.recv(size - len(data))
            if not got:
                raise EOFError(f"{len(data)} of {size} bytes came")
            data += got
        return bytes(data)

    def call(self, kind: int, body: bytes = b"") -> bytes:
        self.send(kind, body)
        return self.receive()

    def copy_body(self, segment: ClosedSegment, **changed: str) -> bytes:
        data = segment.data
        paths = {
            "log_segment": data.log_segment,
            "offset_index": data.offset_index,
            "time_index": data.time_index,
            "transaction_index": data.transaction_index or "",
            "producer_snapshot": data.producer_snapshot,
        } | changed
        return b"".join(
            [
                segment_bytes(segment.metadata),
                *(text(paths[name]) for name in ("log_segment", "offset_index", "time_index")),
                struct.pack(">b", bool(paths["transaction_index"])) + text(paths["transaction_index"]),
                text(paths["producer_snapshot"]) + blob(data.leader_epoch_index),
            ]
        )

    def copy(self, segment: ClosedSegment, **changed: str) -> bytes | None:
        return self.copy_and_sizes(segment, **changed)[0]

    def copy_and_sizes(self, segment: ClosedSegment, **changed: str) -> tuple[bytes | None, tuple[int, ...]]:
        """The custom metadata, and the bytes of the stored objects: log, indexes, manifest."""
        answer = self.call(COPY, self.copy_body(segment, **changed))
        (size,) = struct.unpack_from(">i", answer)
        end = 4 + max(size, 0)
        assert len(answer) == end + 24
        return None if size == -1 else answer[4:end], struct.unpack_from(">3q", answer, end)

    def fetch(
        self, metadata: RemoteLogSegmentMetadata, start: int = 0, end: int = -1, *, piece: int = 1 << 20
    ) -> bytes:
        """All of a range, piece by piece."""
        data = bytearray()
        while True:
            body = segment_bytes(metadata) + struct.pack(">iii", start + len(data), end, piece)
            answer = self.call(FETCH_RANGE, body)
            assert len(answer) - 1 <= piece
            data += answer[1:]
            if answer[0]:
                return bytes(data)
            assert len(answer) > 1, "no byte, and it is not the end"

    def index(self, metadata: RemoteLogSegmentMetadata, kind: IndexType, *, piece: int = 1 << 20) -> bytes:
        data = bytearray()
        while True:
            body = segment_bytes(metadata) + struct.pack(">bii", INDEX_TYPES.index(kind), len(data), piece)
            answer = self.call(FETCH_INDEX, body)
            data += answer[1:]
            if answer[0]:
                return bytes(data)

    def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        assert self.call(DELETE, segment_bytes(metadata)) == b""

    def health(self) -> str:
        return self.call(HEALTH)[2:].decode()

    def mbeans(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = json.loads(self.call(METRICS)[4:])
        return found

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class RunningSidecar:
    """A sidecar that takes connections.

    Args:
        path: Of its socket.
        process: Of the server; a test may kill it.
        log: What it wrote to stderr.
    """

    path: str
    process: subprocess.Popen[bytes]
    log: pathlib.Path

    def client(self, **more: Any) -> SidecarClient:
        return SidecarClient(self.path, **more)


def storage_keys(root: pathlib.Path, **more: str) -> dict[str, str]:
    """Keys of a storage manager over a folder; ``_`` in the names of ``more`` stands for a dot."""
    return {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "storage.root": str(root),
        "chunk.size": "65536",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@contextlib.contextmanager
def sidecar(
    folder: pathlib.Path,
    keys: Mapping[str, str],
    *arguments: object,
    own: Mapping[str, str] | None = None,
    as_child: bool = False,
    before: Sequence[str] = (),
    exit_code: int | None = 0,
    **variables: str,
) -> Iterator[RunningSidecar]:
    """Serve a storage manager until the block ends; then SIGTERM, or the end of stdin, must end it with 0.

    Args:
        folder: For its configuration and its log.
        keys: The storage manager's.
        *arguments: More of the command's.
        own: The sidecar's own keys.
        as_child: Whether it gets its keys over stdin, as from the plugin.
        before: The command that runs it.
        exit_code: None: it is not looked at.
        **variables: Of its environment.
    """
    with tempfile.TemporaryDirectory(prefix="sidecar-") as short:
        path = f"{short}/s"
        config = folder / "sidecar.properties"
        config.write_text("".join(f"rsm.config.{key}={value}\n" for key, value in keys.items()))
        config.write_text(config.read_text() + "".join(f"{key}={value}\n" for key, value in (own or {}).items()))
        command = [*before, sys.executable, "-m", "tierlog", "-v", "sidecar", "--listen", f"unix:{path}"]
        command += ["--config", "-" if as_child else str(config), *map(str, arguments)]
        log = folder / "sidecar.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, env=environment(**variables)
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if as_child:
                process.stdin.write(json.dumps({**keys, **(own or {})}).encode() + b"\n")
                process.stdin.flush()
                assert process.stdout.readline() == b"ready\n", log.read_text()[-2000:]
            _wait_for(process, path, log)
            yield RunningSidecar(path, process, log)
            if process.poll() is None and exit_code is not None:
                if as_child:
                    process.stdin.close()
                else:
                    process.send_signal(signal.SIGTERM)
                assert process.wait(STOP_SECONDS) == exit_code, log.read_text(errors="replace")[-2000:]
                assert not pathlib.Path(path).exists()
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _wait_for(process: subprocess.Popen[bytes], path: str, log: pathlib.Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        with contextlib.suppress(OSError), SidecarClient(path, greets=False):
            return
        time.sleep(0.02)
    raise AssertionError(f"the sidecar does not listen after {START_SECONDS} s")
