"""Kafka's own command-line tools, run one after the other in one JVM (tests/interop/clients/KafkaTools.java)."""

from __future__ import annotations

import base64
import contextlib
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.checkout import ROOT
from tests.support.line_process import LineProcess
from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers import install

_SOURCE = ROOT / "tests" / "interop" / "clients" / "KafkaTools.java"
_PACKAGE = "org.apache.kafka.tools."
#: The shell scripts' names, and the classes that they start.
CLASSES = {
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-topics": "TopicCommand",
    "kafka-verifiable-consumer": "VerifiableConsumer",
}
CALL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Ran:
    """How a tool ended, and what it printed."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """All that it printed, on either stream."""
        return self.out.decode(errors="replace") + self.err


class KafkaTools:
    """The tools; one call at a time."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    def run(self, tool: str, *arguments: str) -> Ran:
        """Run a tool, by the name of its script, to its end. The test fails where it hangs."""
        words = (_PACKAGE + CLASSES[tool], *arguments)
        question = [base64.b64encode(word.encode()).decode() for word in words]
        code, out, err = self._process.ask(*question, seconds=CALL_SECONDS).split()
        return Ran(int(code), _printed(out), _printed(err).decode(errors="replace"))


def _printed(word: str) -> bytes:
    return base64.b64decode(word.removesuffix("-"))


@contextlib.contextmanager
def kafka_tools(folder: pathlib.Path) -> Iterator[KafkaTools]:
    """The tools of Kafka 4.3 until the block ends; the test is skipped where they cannot be had."""
    needs_a_broker()
    jars = sorted(install.jars("kafka").glob("*.jar"))
    (tools,) = (jar for jar in jars if jar.name.startswith("kafka-tools-") and "-api-" not in jar.name)
    class_path = ":".join(str(jar) for jar in jars if jar != tools)
    command = [install.java(), "-Xmx512m", "-cp", class_path, str(_SOURCE), str(tools)]
    with LineProcess(command, folder / "kafka-tools.err") as process:
        yield KafkaTools(process)
