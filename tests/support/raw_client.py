"""A client of Kafka's protocol in a few lines, for measuring a server request by request."""

from __future__ import annotations

import io
import socket
import struct
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer


class RawClient:
    """One connection; one request under way."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def frame(self, request: Any) -> bytes:
        """The bytes of a request, its size in front."""
        header_class = request.__header_schema__
        self._correlation_id += 1
        header = header_class(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=self._correlation_id,
            client_id="bench",
        )
        buffer = io.BytesIO()
        entity_writer(header_class)(buffer, header)
        entity_writer(type(request))(buffer, request)
        return struct.pack(">i", buffer.tell()) + buffer.getvalue()

    def exchange(self, frame: bytes) -> bytes:
        """Send a frame; the answer without its size."""
        self.send(frame)
        return self.receive()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> bytes:
        """The next answer without its size."""
        (size,) = struct.unpack(">i", self._read(4))
        return bytes(self._read(size))

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, request: Any) -> Any:
        """The answer to a request, parsed."""
        answer = self.exchange(self.frame(request))
        response_class = load_response_schema(request.__api_key__, request.__version__)
        _, header_size = entity_reader(response_class.__header_schema__)(answer, 0)
        entity, _ = entity_reader(response_class)(answer, header_size)
        return entity

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise ConnectionError("the server has closed the connection")
            view = view[got:]
        return data

    def close(self) -> None:
        self._socket.close()


def request_class(api_key: int, api_version: int) -> Any:
    return load_request_schema(api_key, api_version)
