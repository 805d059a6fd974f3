"""A peer in a process of its own, warm over all rounds: one line in is one round, one JSON line out is its answer.

Peers that do rounds of several kinds are told by the words of the line which one.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.peers import install


class Peer:
    """Runs a round when called.

    Args:
        name: For messages.
        process: Started already; its stdin and stdout are pipes.
    """

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self._name = name
        self._process = process
        self.last: dict[str, Any] = {}

    def __call__(self, *words: object) -> float:
        """Seconds of one round, which the words are about, as the peer measured them: without the hand-over."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with {self._process.wait()}")
        self.last = json.loads(line)
        return float(self.last["seconds"])

    @property
    def answer(self) -> tuple[int, int]:
        """(records, check) of the last round."""
        return int(self.last["records"]), int(self.last["check"])


@contextlib.contextmanager
def started(name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Iterator[Peer]:
    """The peer until the block ends."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=install.ROOT
    )
    with process:
        try:
            yield Peer(name, process)
        finally:
            process.kill()


@contextlib.contextmanager
def decoders(log: pathlib.Path, bootstrap: str, topic: str) -> Iterator[dict[str, Peer]]:
    """All peers that decode: over the log file, or over the topic of the broker that wrote it."""
    source = str(pathlib.Path(__file__).with_name("RecordIterator.java"))
    java = [install.java(), "-Xmx2g", "-cp", install.class_path("kafka"), source, str(log)]
    python, environment = str(install.python()), install.environment()
    scripts = {"aiokafka": [str(log)], "kafka-python": [str(log)], "confluent-kafka": [bootstrap, topic]}
    with contextlib.ExitStack() as stack:
        peers = {"Kafka's Java iterator": stack.enter_context(started("java", java))}
        for name, arguments in scripts.items():
            command = [python, "-m", "bench.peers.decode_peers", name, *arguments]
            peers[name] = stack.enter_context(started(name, command, environment=environment))
        yield peers
