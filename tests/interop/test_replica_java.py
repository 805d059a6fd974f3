"""Kafka's own consumer reads every golden bucket through ``tierlog replica``."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.support.golden import ISOLATIONS, answers, tiered_offsets
from tests.support.golden_replicas import golden_replicas
from tests.support.line_process import LineProcess
from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers import install
from tests.support.replica_readers import CLIENTS, expected_rows, rows_of_lines

pytestmark = pytest.mark.interop

TOPIC_SECONDS = 120.0


def test_kafkas_consumer_reads_what_a_real_consumer_read(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise history is another than the broker's for most who read it. It gets leader epochs, too: by these
    a consumer sees that a log was cut.
    """
    needs_a_broker()
    command = [install.java(), "-Xmx512m", "-cp", install.class_path("kafka"), str(CLIENTS / "ReplicaReader.java")]
    out, compared = tmp_path / "rows.jsonl", 0
    with LineProcess(command, tmp_path / "java.err") as reader:
        for server, cases in golden_replicas(fixtures, tmp_path):
            for case in cases:
                partitions = ",".join(map(str, sorted(tiered_offsets(case))))
                for isolation in ISOLATIONS:
                    wanted = answers(case, isolation)
                    if not wanted:
                        continue
                    asked = (server.bootstrap, case.topic, isolation, partitions, out)
                    count = int(reader.ask(*asked, seconds=TOPIC_SECONDS))
                    text = out.read_text()
                    assert rows_of_lines(text) == expected_rows(case, isolation), f"{case} {isolation}"
                    told = [json.loads(line) for line in text.splitlines()]
                    keys = ("partition", "offset", "timestampType", "leaderEpoch")
                    found = sorted(tuple(record[key] for key in keys) for record in told)
                    assert found == [(p, o, kind, epoch) for p, o, _, kind, epoch, *_ in wanted], f"{case} {isolation}"
                    assert count == len(wanted)
                    compared += 1
    assert compared > 60
