"""Answers of which a part is in files: every byte comes, in order, and once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.broker_servers import Call, Client, Serving, serving
from tests.support.certificates import write_certificates
from tests.support.file_parts import bytes_of, drop_from_memory, part_of, tells_what_is_in_memory
from tests.support.open_files import count_open_files
from tests.support.waiting import wait_until
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.server.server_config import SecurityProtocol, ServerConfig
from tierlog.runtime.machine import Machine
from tierlog.runtime.waiting.file_part import FilePart
from tierlog.runtime.waiting.loops import Worker
from tierlog.serving.response_writer import Reply, ResponseWriter, WriterCalls

MIB = 1 << 20
CONFIG = ServerConfig(port=0)


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(Machine().scheduler.pool(2, name="test-files"), Machine())
    yield made
    made.close()


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    if not tells_what_is_in_memory(tmp_path):
        pytest.skip("the system does not tell what is in memory")
    path = tmp_path / "log"
    path.write_bytes(random.Random(4).randbytes(12 * MIB))
    return path


class Answers:
    """Gives one answer after another, made when it is asked for."""

    def __init__(self, make: Callable[[], Sequence[memoryview | FilePart]]) -> None:
        self._make = make
        self.expected: list[bytes] = []
        self.released = 0

    async def answer(self, request: Any, context: RequestContext) -> Answer:
        del request, context
        buffers = self._make()
        self.expected.append(bytes_of(buffers))
        return Reply(buffers, len(self.expected[-1]), self._release)

    def _release(self) -> None:
        self.released += 1


@contextlib.contextmanager
def served(
    answers: Answers, folder: pathlib.Path, *, tls: bool = False, config: ServerConfig = CONFIG
) -> Iterator[tuple[Serving, Callable[[], Client]]]:
    """A server with these answers, and what connects to it."""
    wrap = None
    if tls:
        files = write_certificates(folder / "tls")
        config = dataclasses.replace(
            config,
            security_protocol=SecurityProtocol.SSL,
            ssl_certificate_chain_location=str(files.chain),
            ssl_key_location=str(files.key),
        )
        trust = ssl.create_default_context(cafile=str(files.authority))

        def wrap(bare: socket.socket) -> socket.socket:
            return trust.wrap_socket(bare, server_hostname="localhost")

    with serving([Call(answers.answer)], config) as running:
        yield running, lambda: running.client(wrap=wrap)


def ask(client: Client) -> None:
    client.send_request(60, 0, b"\0" * 3, flexible=True)


def some_buffers(chance: random.Random, path: pathlib.Path, worker: Worker) -> list[memoryview | FilePart]:
    buffers: list[memoryview | FilePart] = []
    for _ in range(chance.randrange(1, 12)):
        if chance.random() < 0.5:
            buffers.append(memoryview(chance.randbytes(chance.choice([0, 1, 30, 5000, 300_000]))))
        else:
            size = chance.choice([1, 4096, 70_000, MIB, 5 * MIB])
            buffers.append(part_of(path, worker, chance.randrange(12 * MIB - size), size))
    return buffers


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_any_answer_comes_whole(path: pathlib.Path, tmp_path: pathlib.Path, worker: Worker, tls: bool) -> None:
    """A byte that is doubled, lost or out of place is a corrupt batch, or another record, for the consumer."""
    chance = random.Random(7)
    answers = Answers(lambda: some_buffers(chance, path, worker))
    with served(answers, tmp_path, tls=tls) as (_, connect), connect() as client:
        for number in range(25):
            if number % 5 == 3:
                drop_from_memory(path)
            asked = chance.randrange(1, 3)
            for _ in range(asked):
                ask(client)
            for _ in range(asked):
                assert client.read_frame()[5:] == answers.expected.pop(0)
        wait_until(lambda: answers.released >= 25)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_what_left_memory_is_read_by_a_thread(
    path: pathlib.Path, tmp_path: pathlib.Path, worker: Worker, tls: bool
) -> None:
    """A reader that is slow outlasts the page cache: the event loop would wait for the disk for all others, too."""
    reads: list[int] = []

    class Counted(Worker):
        def submit(self, call: Any) -> Any:
            reads.append(threading.get_ident())
            return worker.submit(call)

    counted = Counted(Machine().scheduler.pool(1, name="never"), Machine())
    answers = Answers(lambda: [part_of(path, counted, 5, 12 * MIB - 9), memoryview(b"end")])
    with served(answers, tmp_path, tls=tls) as (_, connect), connect() as client:
        ask(client)
        first = client.read(200_000)
        assert not reads
        drop_from_memory(path)
        rest = client.read(12 * MIB - 9 + 3 + 9 - len(first))
        assert (first + rest)[9:] == answers.expected[0]
        assert reads
        assert client.socket.gettimeout()
        ask(client)
        assert client.read_frame()[5:] == answers.expected[1]
    counted.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_file_that_is_cut_short_ends_the_connection(
    path: pathlib.Path, tmp_path: pathlib.Path, worker: Worker, tls: bool
) -> None:
    """The client was told how many bytes come: whatever came in their place would be taken for records."""
    answers = Answers(lambda: [part_of(path, worker, 0, 12 * MIB)])
    with served(answers, tmp_path, tls=tls) as (running, connect):
        with connect() as client:
            ask(client)
            first = client.read(100_000)
            os.truncate(path, 9 * MIB)
            got = bytearray(first)
            with contextlib.suppress(OSError):  # a reset, too, is an end
                while part := client.socket.recv(MIB):
                    got += part
        assert answers.expected[0].startswith(bytes(got)[9:])
        assert len(got) < 9 * MIB + 10
        wait_until(lambda: answers.released == 1)
        assert running.metrics.refused("fault") == 1
        answers._make = lambda: [memoryview(b"other")]
        with connect() as client:
            ask(client)
            assert client.read_frame()[5:] == b"other"


def test_a_client_that_goes_leaves_no_file_open(path: pathlib.Path, tmp_path: pathlib.Path, worker: Worker) -> None:
    """Consumers that come and go would use up the descriptors, and keep deleted segments on the disk."""
    answers = Answers(lambda: [part_of(path, worker, 0, 12 * MIB)])

    with served(answers, tmp_path) as (running, connect):
        for _ in range(10):
            with connect() as client:
                ask(client)
                client.read(50_000)
                assert count_open_files(path) == 1
            wait_until(lambda: count_open_files(path) == 0)
        assert answers.released == 10
        assert running.metrics.refused("fault") == 0


def test_a_client_that_takes_no_byte_of_a_file_is_cut_off(
    path: pathlib.Path, tmp_path: pathlib.Path, worker: Worker
) -> None:
    """A reader that hangs would keep the file for as long as its machine is up; one that is slow has a slow line."""
    answers = Answers(lambda: [part_of(path, worker, 0, 12 * MIB)] * 3)
    config = dataclasses.replace(CONFIG, response_deadline_ms=2000)
    with served(answers, tmp_path, config=config) as (running, connect):
        with connect() as client:
            ask(client)
            pause = threading.Event()
            got = 0
            while got < 36 * MIB + 9:
                pause.wait(0.04)
                got += len(client.read(min(MIB, 36 * MIB + 9 - got)))
            assert running.metrics.refused("response_deadline") == 0
            ask(client)
            wait_until(lambda: running.metrics.refused("response_deadline") == 1)
        wait_until(lambda: answers.released == 2)


class ClosedTransport:
    """A transport whose socket is closed, and of which the protocol has not been told so yet."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.is_closed = False

    def fileno(self) -> int:
        return self._number

    def setsockopt(self, *_: int) -> None:
        assert not self.is_closed, "an option of somebody else's socket"

    def get_extra_info(self, _: str) -> ClosedTransport:
        return self

    def is_closing(self) -> bool:
        return self.is_closed

    def set_write_buffer_limits(self, *_: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: memoryview) -> None:
        assert not self.is_closed


def test_nothing_goes_to_a_socket_that_took_the_number_of_a_closed_one(path: pathlib.Path, worker: Worker) -> None:
    """The rest of one client's records would go out in the midst of another client's answer."""
    later: list[Callable[[], None]] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        transport = ClosedTransport(ours.fileno())
        calls = WriterCalls(later.append, asyncio.create_task, lambda: None, lambda error: None)  # type: ignore[arg-type]
        writer = ResponseWriter(transport, has_tls=False, calls=calls)  # type: ignore[arg-type]
        released: list[bool] = []
        reply = Reply([part_of(path, worker, 0, 12 * MIB)], 12 * MIB, lambda: released.append(True))
        transport.write = lambda data: writer.pause()  # type: ignore[method-assign, assignment]
        writer.write(reply)
        while True:
            try:
                theirs.recv(MIB)
            except BlockingIOError:
                break
        transport.is_closed = True
        writer.resume()
        for call in later:
            call()
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        writer.lose()
        assert released == [True]
