"""The planner's child over real pipes, as the jar drives it, and its frames as plain values."""

from __future__ import annotations

import json
import os
import pathlib
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

import pyspark_tierlog
import tierlog
from tests.support.golden import config_of

HEAD = struct.Struct(">iB")
ROOTS = [str(pathlib.Path(module.__file__ or "").parents[1]) for module in (tierlog, pyspark_tierlog)]

Frame = tuple[str, bytes]


class PlannerError(Exception):
    """What the child told in a frame ``E``."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(told["text"])
        self.kind: str = told["kind"]
        self.retriable: bool = told["retriable"]


@dataclass
class Plan:
    """The frames of an answer to ``plan``.

    Attributes:
        stores: (kind, url, options, key files) each.
        segments, tasks: Dicts under the names of io.tierlog.plan.
    """

    head: dict[str, Any]
    stores: list[tuple[str, str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    segments: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[list[dict[str, Any]]] = field(default_factory=list)
    answer: list[list[Any]] | None = None
    known: list[list[Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Body:
    """A read position in a frame's body."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(">" + form, self._data, self._at)
        self._at += struct.calcsize(">" + form)
        return found

    def number(self, form: str = "i") -> int:
        return int(self.numbers(form)[0])

    def bytes(self) -> bytes | None:
        size = self.number()
        if size < 0:
            return None
        self._at += size
        assert self._at <= len(self._data)
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return (self.bytes() or b"").decode()

    def pairs(self) -> dict[str, str]:
        return {self.text(): self.text() for _ in range(self.number())}

    def end(self) -> None:
        assert self._at == len(self._data), "bytes behind the end"


class PlannerChild:
    """``python -m pyspark_tierlog.plan``; a context manager that lets it end by the end of its input."""

    def __init__(self, *, stderr: int | IO[bytes] | None = None, environment: Mapping[str, str] | None = None) -> None:
        paths = os.pathsep.join([*ROOTS, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyspark_tierlog.plan"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | {"PYTHONPATH": paths} | dict(environment or {}),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.answers = self.process.stdin, self.process.stdout
        self.hello = self.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.process.kill()
        self.end()

    def end(self) -> int:
        """Closes both pipes; the exit code."""
        try:
            self.requests.close()
        except BrokenPipeError:
            pass  # it is gone already
        self.answers.close()
        if self.process.stderr is not None:
            self.process.stderr.close()
        return self.process.wait(30)

    def write(self, kind: str, body: bytes) -> None:
        self.requests.write(HEAD.pack(len(body), ord(kind)) + body)

    def read(self) -> Frame | None:
        head = self.answers.read(HEAD.size)
        if len(head) < HEAD.size:
            return None
        size, kind = HEAD.unpack(head)
        return chr(kind), self.answers.read(size)

    def iter_answer(self, request: Mapping[str, object], blobs: Sequence[bytes] = ()) -> Iterator[Frame]:
        """The frames before the end. Raises PlannerError."""
        self.write("Q", json.dumps({**request, "blobs": len(blobs)}).encode())
        for blob in blobs:
            self.write("B", blob)
        self.requests.flush()
        while True:
            frame = self.read()
            assert frame is not None, "the child ended in the middle of an answer"
            if frame[0] == "Z":
                return
            if frame[0] == "E":
                raise PlannerError(json.loads(frame[1]))
            yield frame

    def list(self, options: Mapping[str, str]) -> list[bytes]:
        found = list(self.iter_answer({"op": "list", "options": options}))
        return [body for kind, body in found if kind == "L"]

    def plan(
        self,
        options: Mapping[str, str],
        listing: Sequence[bytes] | None = None,
        *,
        columns: Sequence[str] = ("value",),
        filters: Sequence[object] = (),
        limit: int | None = None,
        aggregates: Mapping[str, object] | None = None,
    ) -> Plan:
        request = {"op": "plan", "options": options, "columns": columns, "filters": filters}
        request |= {"limit": limit, "aggregates": aggregates}
        return decoded(self.iter_answer(request, self.list(options) if listing is None else listing))


def decoded(frames: Iterator[Frame]) -> Plan:
    kind, body = next(frames)
    assert kind == "P"
    plan = Plan(json.loads(body))
    for kind, body in frames:
        read = Body(body)
        if kind == "O":
            plan.stores.append((read.text(), read.text(), read.pairs(), read.pairs()))
            read.end()
        elif kind == "S":
            plan.segments.append(_segment(read))
        elif kind == "T":
            plan.tasks.append([_range(read, plan.segments) for _ in range(read.number())])
            read.end()
        elif kind == "K":
            plan.known += json.loads(body)
        elif kind == "W":
            plan.warnings.append(read.text())
        else:
            assert kind == "A"
            plan.answer = (plan.answer or []) + json.loads(body)
    return plan


def _segment(read: Body) -> dict[str, Any]:
    found: dict[str, Any] = {"store": read.number(), "topic": read.text(), "partition": read.number()}
    found |= {name: read.text() for name in ("label", "name", "key")}
    names = ("logPosition", "sizeBytes", "compressed", "originalChunkSize")
    found |= dict(zip(names, read.numbers("qqBi"), strict=True))
    if read.number("B"):
        found |= {"keyId": read.text(), "wrappedKey": read.bytes(), "aad": read.bytes()}
    found |= dict(zip(("lastModifiedMs", "maxTimestampMs"), read.numbers("qq"), strict=True))
    read.end()
    return found


def _range(read: Body, segments: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"segment": segments[read.number()]}
    names = ("start", "end", "fromOffset", "toOffset", "leastOffset", "greatestOffset", "fromTimestamp", "toTimestamp")
    found |= dict(zip(names, read.numbers("qqqqqqqq"), strict=True))
    found["aborted"] = read.bytes()
    found["chunks"] = None
    if read.number("B"):
        first_original, first_transformed, last_size, count = read.numbers("qqii")
        sizes = np.array(read.numbers(f"{count}i"), np.int64)
        found["chunks"] = (first_original, first_transformed, last_size, sizes)
    return found


def options_of(run: pathlib.Path) -> dict[str, str]:
    return {"path": str(run / "objects"), "subscribePattern": ".*", **config_of(run)}
