"""The jar's client of object stores in a JVM of its own, and an HTTP store that fails as it is told."""

from __future__ import annotations

import base64
import contextlib
import http.server
import os
import pathlib
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from typing import Self

from tests.support.checkout import ROOT
from tests.support.task_reader import Unavailable, jar, spark_jars

HARNESS = ROOT / "bindings/spark/java/src/test/java/io/tierlog/engine/StoreHarness.java"


class StoreClientProcess:
    """One JVM with one client at a time; a context manager.

    Args:
        folder: For what is compiled.
        environment: Of the JVM.

    Raises:
        Unavailable: no jar, no JDK, or a jar without the library.
    """

    def __init__(self, folder: pathlib.Path, *, environment: Mapping[str, str] | None = None) -> None:
        home = os.environ.get("JAVA_HOME")
        java, javac = (f"{home}/bin/{name}" if home else shutil.which(name) or "" for name in ("java", "javac"))
        if not (os.access(java, os.X_OK) and os.access(javac, os.X_OK)):
            raise Unavailable("no JDK: JAVA_HOME has no javac")
        path = f"{jar()}:{spark_jars()}/*"
        classes = folder / "classes"
        subprocess.run([javac, "-nowarn", "-cp", path, "-d", classes, HARNESS], check=True, capture_output=True)
        command = [java, "-Xmx256m", "-Xcheck:jni", "-cp", f"{classes}:{path}", "io.tierlog.engine.StoreHarness"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        assert self._process.wait(30) == 0

    def ask(self, *words: object) -> list[str]:
        """The words of the answer; texts in base64 are decoded where they start with ``=``."""
        sent = [str(word) if not isinstance(word, bytes) else f"={base64.b64encode(word).decode()}" for word in words]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(sent) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().strip()
        assert line, "the JVM died"
        return line.split(" ")

    def open(self, url: str, options: Mapping[str, str]) -> None:
        """Raises ClientError."""
        pairs = [text.encode() for pair in options.items() for text in pair]
        _checked(self.ask("open", url.encode(), *pairs))

    def read(self, key: str, start: int, end: int) -> bytes:
        """Raises ClientError."""
        return base64.b64decode(_checked(self.ask("read", key.encode(), start, end))[1][1:])


class ClientError(Exception):
    """What Java threw: the kind, and the text."""

    @property
    def kind(self) -> str:
        return str(self.args[0])

    @property
    def text(self) -> str:
        return str(self.args[1])


def error_of(words: list[str]) -> ClientError:
    return ClientError(words[1], base64.b64decode(words[2][1:]).decode())


def _checked(words: list[str]) -> list[str]:
    if words[0] == "error":
        raise error_of(words)
    return words


class _Faults(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stalled = threading.Event()

    def do_GET(self) -> None:
        """The last part of the path says what goes wrong."""
        fault = self.path.partition("?")[0].rpartition("/")[2]
        if fault.startswith("status-"):
            code, _, word = fault.removeprefix("status-").partition("-")
            body = f"<Error><Code>{word}</Code></Error>".encode()
            self.send_response(int(code))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        elif fault == "reset":
            self.close_connection = True
        elif fault == "stall":
            self.stalled.wait(20)
            self.close_connection = True
        elif fault == "cut":
            self._send_part(b"01234", 10, total=10)
            self.close_connection = True
        elif fault == "whole":  # a store that knows no ranges
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"0123456789")
        elif fault == "more":
            self._send_part(b"0123456789", 10, total=4)

    def _send_part(self, body: bytes, length: int, *, total: int) -> None:
        self.send_response(206)
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Range", f"bytes 0-{total - 1}/{total}")
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def failing_store() -> Iterator[str]:
    """The endpoint of an S3 store whose keys are faults."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Faults)
    server.daemon_threads = True
    _Faults.stalled.clear()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        _Faults.stalled.set()
        server.shutdown()
        server.server_close()
        thread.join()
