"""Partitions at their leaders, asked through librdkafka: here of a replica, which serves what real brokers tiered."""

from __future__ import annotations

import itertools
import pathlib

import pytest

from tests.support.batches import Batch, message
from tests.support.buckets import Bucket
from tests.support.golden import ISOLATIONS
from tests.support.golden_replicas import golden_replicas
from tests.support.replica_readers import expected_rows, row
from tests.support.replica_server import replica
from tests.support.segments import Aborted
from tests.support.waiting import wait_until
from tierlog.errors import ConfigError, DataLossError, StoreUnavailableError, UnknownTopicError
from tierlog.remote.tier import open_tier
from tierlog.scan.history import TierHistory
from tierlog.scan.live.broker_logs import BrokerLogs
from tierlog.scan.live.loss_report import LossReport
from tierlog.scan.live.seams import BrokerFacts, require_one_log
from tierlog.scan.reading.read import DEFAULT_COLUMNS

COLUMNS = (*DEFAULT_COLUMNS, "headers")
LOSSES = LossReport(fails=True)


def keys_of(bootstrap: str, isolation: str = "read_uncommitted") -> dict[str, str]:
    return {"bootstrap.servers": bootstrap, "isolation.level": isolation, "default.api.timeout.ms": "20000"}


def test_records_are_those_of_a_real_consumer(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, records from brokers are others than those of a consumer, or their columns mean other things."""
    compared = 0
    for server, cases in itertools.islice(golden_replicas(fixtures, tmp_path), 2):
        for case, isolation in itertools.product(cases, ISOLATIONS):
            expected = expected_rows(case, isolation)
            if not expected:
                continue
            found = []
            with BrokerLogs(keys_of(server.bootstrap, isolation)) as logs:
                _, partitions = logs.partitions(case.topic)
                for number, (start, end) in logs.offsets(case.topic, partitions).items():
                    for batch in logs.iter_records(case.topic, number, start, end, losses=LOSSES, columns=COLUMNS):
                        assert batch.num_rows
                        found += batch.to_pylist()
            rows = [
                row(
                    each["partition"],
                    each["offset"],
                    int(each["timestamp"].timestamp() * 1000 + 0.5),
                    each["key"],
                    each["value"],
                    [(header["key"].encode(), header["value"]) for header in each["headers"] or ()],
                )
                for each in found
            ]
            assert sorted(rows) == expected, f"{case} {isolation}"
            compared += len(rows)
    assert compared > 1000


@pytest.fixture
def served(tmp_path: pathlib.Path) -> tuple[Bucket, pathlib.Path]:
    """Offsets 0 to 29, of epoch 0; 25 to 28 are an aborted transaction."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("a", [message(offset, f"m{offset}", 0) for offset in range(20)], lineage={0: 0})
    ours = {"producer_id": 7, "producer_epoch": 0}
    batches = [message(offset, f"m{offset}", 0) for offset in range(20, 25)]
    batches.append(Batch(25, (b"x", b"y", b"z"), transactional=True, **ours))
    batches += [Batch(28, (b"",), marker="abort", **ours), message(29, "m29", 0)]
    bucket.segment("b", batches, lineage={0: 0}, aborted=[Aborted(7, 25, 28, 29)])
    return bucket, tmp_path


def test_ranges_times_and_facts(served: tuple[Bucket, pathlib.Path]) -> None:
    """If this fails, a range has records beyond its ends, or a seam is judged by facts of other records."""
    bucket, folder = served
    with replica(bucket.root, folder) as server:
        with BrokerLogs(keys_of(server.bootstrap)) as logs:
            assert "orders" in logs.topic_names()
            topic_id, partitions = logs.partitions("orders")
            assert (topic_id, list(partitions)) == (bucket.topic_id, [0])
            assert logs.offsets("orders", [0]) == {0: (0, 30)}
            for first, end in ((0, 30), (3, 7), (7, 8), (24, 29), (28, 29), (29, 30)):
                found = [
                    n
                    for rows in logs.iter_records("orders", 0, first, end, losses=LOSSES)
                    for n in rows["offset"].to_pylist()
                ]
                assert found == [n for n in range(first, end) if n != 28]
            times = logs.offsets_by_time("orders", {0: 1_700_000_000_000 + 21_000})
            assert times == {0: 21}
            assert logs.offsets_by_time("orders", {0: 1_900_000_000_000}) == {0: None}
            facts = logs.facts("orders", {0: 20})[0]
            assert facts == BrokerFacts(bucket.topic_id, 30, 19, 0)
            assert logs.facts("orders", {0: 29})[0].first_offset == 29  # behind the marker
            assert logs.facts("orders", {0: None})[0].end_offset is None
            with open_tier(str(bucket.root)) as tier:
                (history,) = TierHistory(tier).partitions(["orders"])
            require_one_log(history, facts)
            require_one_log(history, logs.facts("orders", {0: 30})[0])
        with BrokerLogs(keys_of(server.bootstrap, "read_committed")) as logs:
            found = [
                n for rows in logs.iter_records("orders", 0, 20, 30, losses=LOSSES) for n in rows["offset"].to_pylist()
            ]
            assert found == [20, 21, 22, 23, 24, 29]


def test_records_that_have_gone(served: tuple[Bucket, pathlib.Path]) -> None:
    """If this fails, a task whose offsets retention took meanwhile ends in librdkafka's words, or stands still."""
    bucket, folder = served
    for path in bucket.path("a", "log").parent.glob(f"{bucket.path('a', 'log').stem}.*"):
        path.unlink()
    with replica(bucket.root, folder) as server, BrokerLogs(keys_of(server.bootstrap, "read_committed")) as logs:
        with pytest.raises(DataLossError, match=r"orders-0: offsets 3 to 19 are not at the brokers; failOnDataLoss"):
            list(logs.iter_records("orders", 0, 3, 30, losses=LOSSES))
        going_on = LossReport(fails=False)
        found = [
            n for rows in logs.iter_records("orders", 0, 3, 30, losses=going_on) for n in rows["offset"].to_pylist()
        ]
        assert found == [20, 21, 22, 23, 24, 29]
        assert list(logs.iter_records("orders", 0, 3, 10, losses=going_on)) == []
        assert list(logs.iter_records("orders", 0, 35, 40, losses=going_on)) == [], "an unclean election cut the log"
        with pytest.raises(DataLossError, match=r"orders-0: offsets 35 to 39 are not at the brokers"):
            list(logs.iter_records("orders", 0, 35, 40, losses=LOSSES))


def test_what_is_not_there(served: tuple[Bucket, pathlib.Path]) -> None:
    """If this fails, a wrong name or a cluster that is away is a read without an end, or without records."""
    bucket, folder = served
    with replica(bucket.root, folder) as server, BrokerLogs(keys_of(server.bootstrap)) as logs:
        with pytest.raises(UnknownTopicError, match="no topic payments"):
            logs.partitions("payments")
        bootstrap = server.bootstrap
    with BrokerLogs(keys_of(bootstrap) | {"default.api.timeout.ms": "1000"}) as logs:
        with pytest.raises(StoreUnavailableError):
            logs.partitions("orders")
        with pytest.raises(StoreUnavailableError):
            logs.topic_names()
    with pytest.raises(ConfigError, match="unknown key"):
        BrokerLogs({"bootstrap.servers": bootstrap, "no.such.key": "1"})


def test_facts_of_a_log_that_begins_behind_the_seam(tmp_path: pathlib.Path) -> None:
    """If this fails, a tier whose records have gone from the log is an error about an offset that nobody named."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("a", [message(offset, f"m{offset}", 0) for offset in range(5, 10)], lineage={0: 0})
    with replica(bucket.root, tmp_path) as server, BrokerLogs(keys_of(server.bootstrap)) as logs:
        assert logs.facts("orders", {0: 3}) == {0: BrokerFacts(bucket.topic_id, 10, 5, 0)}


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_leader_of_a_later_epoch(tmp_path: pathlib.Path, isolation: str) -> None:
    """A client keeps the epoch that it knows for minutes: the look-ups of a query would be refused for as long."""
    log = Bucket(tmp_path / "log")
    log.segment("s0", [message(0, "m0", 0)], lineage={0: 0})
    with (
        replica(log.root, tmp_path, "--refresh", "0.2") as server,
        BrokerLogs(keys_of(server.bootstrap, isolation)) as logs,
    ):
        assert logs.offsets("orders", [0]) == {0: (0, 1)}
        log.segment("s1", [message(1, "m1", 3)], lineage={0: 0, 3: 1})
        wait_until(lambda: logs.offsets("orders", [0]) == {0: (0, 2)})
        log.segment("s2", [message(2, "m2", 5)], lineage={0: 0, 3: 1, 5: 2})
        wait_until(lambda: logs.offsets_by_time("orders", {0: 1_700_000_002_000}) == {0: 2})
