"""Kafka's own command-line tools read every golden bucket through ``tierlog replica``."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.support.golden import Case, answers, config_of, list_offsets, tiered_offsets, tiered_topics
from tests.support.golden_replicas import expected_reads, golden_replicas
from tests.support.kafka_tools import KafkaTools, kafka_tools
from tests.support.replica_readers import ReadRow, plain_text, row
from tests.support.replica_server import RunningReplica, replica

pytestmark = pytest.mark.interop

FIELD, RECORD, HEADER, NULL = "<|field|>", "<|record|>", "<|header|>", "<|null|>"
SHOWN = {f"print.{name}": "true" for name in ("timestamp", "partition", "offset", "headers", "key")} | {
    "key.separator": FIELD,
    "line.separator": RECORD,
    "headers.separator": HEADER,
    "null.literal": NULL,
}
PATIENCE_MS = "30000"
#: Groups of one member begin at once.
CONFIG = {"group.initial.rebalance.delay.ms": "0"}
EARLIEST, LATEST = "earliest", "latest"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with kafka_tools(tmp_path_factory.mktemp("tools")) as started:
        yield started


def run(tools: KafkaTools, tool: str, server: RunningReplica, *arguments: str) -> str:
    """What a tool prints on stdout, as text; it has to succeed."""
    ran = tools.run(tool, "--bootstrap-server", server.bootstrap, *arguments)
    assert ran.code == 0, ran.text
    return ran.out.decode(errors="replace")


def test_the_console_consumer_prints_what_a_real_consumer_read(
    tools: KafkaTools, fixtures: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The first tool that anybody tries: it would show other records than the broker's."""
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path, CONFIG):
        for case, isolation, expected in expected_reads(cases):
            kinds = timestamp_types(case, isolation)
            for partition in sorted(tiered_offsets(case)):
                wanted = [each for each in expected if each[0] == partition]
                if not wanted:
                    continue
                printed = console_consumer(tools, server, case.topic, partition, isolation, len(wanted))
                assert [found for _, found in printed] == wanted, f"{case} {isolation}"
                assert {kind for kind, _ in printed} <= kinds
                compared += 1
    assert compared > 60


def timestamp_types(case: Case, isolation: str) -> set[str]:
    return {kind for _, _, _, kind, *_ in answers(case, isolation) or ()}


def console_consumer(
    tools: KafkaTools, server: RunningReplica, topic: str, partition: int, isolation: str, count: int
) -> list[tuple[str, ReadRow]]:
    """(timestamp type, row) of the first records of a partition."""
    shown = [word for key, value in SHOWN.items() for word in ("--formatter-property", f"{key}={value}")]
    ran = tools.run(
        "kafka-console-consumer",
        *("--bootstrap-server", server.bootstrap, "--topic", topic, "--partition", str(partition)),
        *("--offset", EARLIEST, "--isolation-level", isolation),
        *("--max-messages", str(count), "--timeout-ms", PATIENCE_MS, *shown),
    )
    assert f"Processed a total of {count} messages" in ran.err, ran.err
    return [_console_row(record) for record in ran.out.split(RECORD.encode())[:-1]]


def _console_row(record: bytes) -> tuple[str, ReadRow]:
    time, partition, offset, headers, key, value = record.split(FIELD.encode())
    kind, _, timestamp_ms = time.decode().partition(":")
    pairs = [] if headers == b"NO_HEADERS" else [each.partition(b":") for each in headers.split(HEADER.encode())]
    return kind, row(
        int(partition.removeprefix(b"Partition:")),
        int(offset.removeprefix(b"Offset:")),
        int(timestamp_ms),
        _or_null(key),
        _or_null(value),
        [(name, _or_null(content)) for name, _, content in pairs],
    )


def _or_null(text: bytes) -> bytes | None:
    return None if text == NULL.encode() else text


def test_the_perf_consumer_counts_all_records_and_bytes(
    tools: KafkaTools, fixtures: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Whoever measures with Kafka's own tool would measure another amount of data than the broker's."""
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path, CONFIG):
        for case, isolation, expected in expected_reads(cases):
            printed = run(
                tools,
                "kafka-consumer-perf-test",
                server,
                *("--topic", case.topic, "--num-records", str(len(expected)), "--timeout", PATIENCE_MS),
                *("--command-property", f"isolation.level={isolation}", "--hide-header"),
            )
            megabytes, _, count = printed.split(", ")[2:5]
            size_bytes = sum(_size(key) + _size(value) for _, _, _, key, value, _ in expected)
            assert (int(count), megabytes) == (len(expected), f"{size_bytes / (1 << 20):.4f}"), f"{case} {isolation}"
            compared += 1
    assert compared > 60


def _size(content: bytes | str | None) -> int:
    """Of a key or a value; large ones are shown as size and digest."""
    return int(content.partition(":")[0]) if isinstance(content, str) else len(content or b"")


def test_the_verifiable_consumer_is_given_each_record_once(
    tools: KafkaTools, fixtures: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Kafka's system tests believe it: a group's reader that gets, or commits, other offsets than the broker's."""
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path, CONFIG):
        for case, isolation, expected in expected_reads(cases):
            settings = tmp_path / f"{isolation}.properties"
            settings.write_text(f"isolation.level={isolation}\n")
            printed = run(
                tools,
                "kafka-verifiable-consumer",
                server,
                *("--topic", case.topic, "--group-id", f"{case.topic}-{isolation}", "--verbose"),
                *("--max-messages", str(len(expected)), "--command-config", str(settings)),
            )
            events = [json.loads(line) for line in printed.split("\n") if line]
            records = [each for each in events if each["name"] == "record_data"]
            assert_records(records, expected, f"{case} {isolation}")
            commits = [each for each in events if each["name"] == "offsets_committed"]
            assert commits
            assert all(each["success"] for each in commits)
            committed = {each["partition"]: each["offset"] for event in commits for each in event["offsets"]}
            assert committed == {partition: offset + 1 for partition, offset, *_ in expected}
            compared += 1
    assert compared > 60


def assert_records(records: Sequence[dict[str, Any]], expected: Sequence[ReadRow], what: str) -> None:
    """Keys and values are text to the tool; of large values the golden data has digests, which text does not give."""
    found = {(each["partition"], each["offset"]): (each["key"], each["value"]) for each in records}
    assert len(found) == len(records), what
    assert sorted(found) == [each[:2] for each in expected], what
    for partition, offset, _, key, value, _ in expected:
        for told, wanted in zip(found[partition, offset], (key, value), strict=True):
            if wanted is None:
                assert told is None, f"{what} {partition} {offset}"
            elif isinstance(wanted, bytes):
                assert plain_text(told) == plain_text(wanted.decode(errors="replace")), f"{what} {partition} {offset}"


def test_offsets_and_times_are_those_of_the_tier(
    tools: KafkaTools, fixtures: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A replay that is to begin at a time, or a lag that is watched, would go by other offsets."""
    asked = 0
    for server, cases in golden_replicas(fixtures, tmp_path, CONFIG):
        spans = {(case.topic, partition): span for case in cases for partition, span in tiered_offsets(case).items()}
        ends = {place: end + 1 for place, (_, end) in spans.items()}
        for time in (LATEST, "earliest-local", "earliest-pending-upload"):
            assert get_offsets(tools, server, time) == ends, time
        assert get_offsets(tools, server, EARLIEST) == {place: first for place, (first, _) in spans.items()}
        assert get_offsets(tools, server, "latest-tiered") == {place: last for place, (_, last) in spans.items()}
        for case in cases:
            for time, wanted in times_of(case, spans):
                (place,) = wanted
                which = ("--topic-partitions", f"{place[0]}:{place[1]}")
                assert get_offsets(tools, server, time, *which) == wanted, f"{case} {time}"
                asked += 1
    assert asked > 100


def times_of(
    case: Case, spans: dict[tuple[str, int], tuple[int, int]]
) -> Iterator[tuple[str, dict[tuple[str, int], int]]]:
    """(time, partition -> offset) of the broker's answers about what is tiered, some for each topic."""
    if not (case.run / "expected" / f"{case.topic}.listoffsets.json").exists():
        return
    known = list_offsets(case)
    for partition, told in known.items():
        if (case.topic, partition) not in spans:
            continue
        first, last = spans[case.topic, partition]
        times = [q for q, answer in told.items() if q.startswith("ts:") and first <= answer.get("offset", -1) <= last]
        for question in {times[0], times[len(times) // 2], times[-1]} if times else ():
            yield question[3:], {(case.topic, partition): told[question]["offset"]}


def get_offsets(tools: KafkaTools, server: RunningReplica, time: str, *which: str) -> dict[tuple[str, int], int]:
    """(topic, partition) -> offset."""
    printed = run(tools, "kafka-get-offsets", server, "--time", time, *which)
    rows = [line.rsplit(":", 2) for line in printed.splitlines()]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def test_groups_are_set_to_the_ends_of_the_tier(
    tools: KafkaTools, fixtures: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Whoever sets a group back would have it begin elsewhere, and its lag would be told wrong."""
    compared = 0
    for server, cases in golden_replicas(fixtures, tmp_path, CONFIG):
        named = ("--group", "replay")
        topics = [word for case in cases for word in ("--topic", case.topic)]
        spans = {(case.topic, partition): span for case in cases for partition, span in tiered_offsets(case).items()}
        for where in (LATEST, EARLIEST):
            run(
                tools, "kafka-consumer-groups", server, *named, "--reset-offsets", f"--to-{where}", *topics, "--execute"
            )
            printed = run(tools, "kafka-consumer-groups", server, *named, "--describe")
            rows = [line.split() for line in printed.splitlines() if line.startswith("replay ")]
            found = {
                (topic, int(partition)): (int(at), int(end), int(lag)) for _, topic, partition, at, end, lag, *_ in rows
            }
            wanted = {}
            for place, (first, last) in spans.items():
                at = first if where == EARLIEST else last + 1
                wanted[place] = at, last + 1, last + 1 - at
            assert found == wanted, where
            compared += len(found)
    assert compared > 60


def test_tools_see_the_topics_and_may_not_change_them(
    tools: KafkaTools, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """An operator would believe that a topic was made or emptied, or wait for a server that never says no."""
    run_folder = data / "main-plain"
    cases = [case for case in tiered_topics(data) if case.run == run_folder]
    partitions = {(case.topic, partition) for case in cases for partition in tiered_offsets(case)}
    topic = cases[0].topic
    emptied = tmp_path / "emptied.json"
    emptied.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 3}], "version": 1}))
    with replica(run_folder / "objects", tmp_path, config=config_of(run_folder) | CONFIG) as server:
        described = run(tools, "kafka-topics", server, "--describe")
        rows = re.findall(r"^\tTopic: (\S+)\tPartition: (\d+)\tLeader: 0\t", described, re.MULTILINE)
        assert {(name, int(partition)) for name, partition in rows} == partitions
        told = json.loads(run(tools, "kafka-log-dirs", server, "--describe").splitlines()[-1])
        held = [each for folder in told["brokers"][0]["logDirs"] for each in folder["partitions"]]
        assert {each["partition"] for each in held} == {f"{name}-{partition}" for name, partition in partitions}
        assert all(each["size"] > 0 for each in held)
        for change in (("--create", "--topic", "new"), ("--delete", "--topic", topic), ("--alter", "--topic", topic)):
            more = ("--partitions", "9") if change[0] == "--alter" else ()
            ran = tools.run("kafka-topics", "--bootstrap-server", server.bootstrap, *change, *more)
            assert ran.code == 1
            assert "read-only replica" in ran.text
        assert "PolicyViolation" in run(tools, "kafka-delete-records", server, "--offset-json-file", str(emptied))
        ran = tools.run(
            "kafka-console-consumer",
            *("--bootstrap-server", server.bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "1"),
            *("--timeout-ms", PATIENCE_MS, "--command-property", "group.protocol=consumer"),
        )
        assert "Processed a total of 0 messages" in ran.err  # the new protocol of groups is refused, not waited for
        assert get_offsets(tools, server, EARLIEST).keys() == partitions
