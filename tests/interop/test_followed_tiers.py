"""A log that begins in the tier, between ours and two real brokers: built by one side, gone on with by the other."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator

import pytest

from tests.support.broker_pair import BEGINS, STAYS, TOPIC, BrokerPair, eventually, segments
from tests.support.command import run_process
from tests.support.metadata_cluster import needs_a_broker, tiered_broker
from tierlog.log.formats.identity_files import Uuid, parse_partition_metadata
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.unified_log import UnifiedLog

pytestmark = pytest.mark.interop

SETTINGS = {
    "remote_storage_enable": "true",
    "internal_segment_bytes": "16384",
    "index_interval_bytes": "256",
    "local_retention_bytes": "1",
    "retention_ms": "-1",
}
CONFIG = LogConfig(segment_bytes=16384, index_interval_bytes=256, remote_storage_enable=True, local_retention_bytes=1)
LEVELS = ("read_uncommitted", "read_committed")


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[BrokerPair]:
    """Two brokers whose topic lies in the tier, but for its end."""
    needs_a_broker()
    made = BrokerPair(tmp_path, lambda _: tiered_broker(tmp_path / "tier"))
    try:
        made.start_both()
        made.make_topic(**SETTINGS)
        made.produce()
        eventually(lambda: len(segments(made.partition(STAYS))) < 3, expected=True)
        yield made
    finally:
        made.close()


def opened(cluster: BrokerPair, node: int) -> tuple[LogDirectory, UnifiedLog]:
    directory = LogDirectory.open(
        str(cluster.log_dir(node)), remote_log_enabled=True, is_sole_replica=False, runs_tasks=False
    )
    return directory, directory.log(TOPIC, 0, config=CONFIG)


def local_bytes(log: UnifiedLog) -> bytes:
    return b"".join(pathlib.Path(log.folder, f"{each.base_offset:020}.log").read_bytes() for each in log.log_segments())


def newest_copied(cluster: BrokerPair, end_offset: int) -> pathlib.Path:
    """The tier's log file whose segment ends in front of an offset; its other files lie beside it."""
    logs = (cluster.folder / "tier").rglob(f"{TOPIC}-0-*/*.log")
    return max((path for path in logs if int(path.name[:20]) < end_offset), key=lambda path: int(path.name[:20]))


def test_a_log_that_a_broker_built_from_its_tier_is_ours(cluster: BrokerPair) -> None:
    """Else a disk that a real follower began in the tier cannot be taken over."""
    stop_the_leader(cluster)
    shutil.rmtree(cluster.partition(BEGINS))
    cluster.start(BEGINS)
    eventually(lambda: cluster.state(STAYS), (STAYS, {STAYS, BEGINS}))
    cluster.stop(BEGINS)
    cluster.stop(STAYS)
    found = []
    for node in (STAYS, BEGINS):
        directory, log = opened(cluster, node)
        with directory:
            assert not log.must_be_rebuilt
            assert [each for each in log.recovery_report.actions if each.kind == "lineage"] == []
            assert log.log_start_offset == 0 < log.local_log_start_offset
            epochs = log.leader_epoch_cache.epoch_with_offsets()
            waiting = [(each.producer_id, each.transaction_first_offset) for each in log.open_transactions()]
            found.append((log.log_end_offset, epochs, waiting))
        assert run_process("verify", cluster.log_dir(node), TOPIC).code == 0
    assert found[0] == found[1]
    assert len(found[0][2]) == 1


def test_brokers_follow_and_serve_what_we_built_from_their_tier(cluster: BrokerPair) -> None:
    """Else a broker that embeds the log cannot go back to Kafka after it had to begin in the tier."""
    rows = {level: cluster.consumed(STAYS, level) for level in LEVELS}
    stop_the_leader(cluster)
    cluster.stop(STAYS)
    topic_id = parse_partition_metadata((cluster.partition(STAYS) / "partition.metadata").read_bytes()).topic_id
    build(cluster, topic_id)
    assert run_process("verify", cluster.log_dir(BEGINS), TOPIC).code == 0
    cluster.start(STAYS)
    cluster.start(BEGINS)
    eventually(lambda: cluster.state(STAYS), (STAYS, {STAYS, BEGINS}))
    said = (cluster.folder / str(BEGINS) / "broker.out").read_text()
    assert "build the remote log auxiliary state" not in said.lower()  # ours was a whole beginning
    cluster.elect_the_preferred()
    for level in LEVELS:
        assert cluster.consumed(BEGINS, level) == rows[level]


def build(cluster: BrokerPair, topic_id: Uuid) -> None:
    """Remove the follower's log; begin another behind what the tier has, and append the leader's local records."""
    source, leader = opened(cluster, STAYS)
    with source:
        start, sent = leader.local_log_start_offset, local_bytes(leader)
        high_watermark, epoch = leader.high_watermark, leader.leader_epoch_cache.latest_entry
    assert start > 0
    assert epoch is not None
    shutil.rmtree(cluster.partition(BEGINS))
    copied = newest_copied(cluster, start)
    with LogDirectory.open(
        str(cluster.log_dir(BEGINS)), remote_log_enabled=True, is_sole_replica=False, runs_tasks=False
    ) as directory:
        log = directory.log(TOPIC, 0, config=CONFIG, topic_id=topic_id)
        lineage = parse_leader_epochs(copied.with_suffix(".leader_epoch_checkpoint").read_bytes())
        log.start_from_tier(
            start,
            log_start_offset=0,
            epochs=[(each.epoch, each.start_offset) for each in lineage],
            producer_snapshot=copied.with_suffix(".snapshot").read_bytes(),
        )
        log.append_as_follower(bytearray(sent), leader_epoch=epoch.epoch)
        log.update_high_watermark(high_watermark)


def stop_the_leader(cluster: BrokerPair) -> None:
    """Stop the preferred leader, so that the other broker leads."""
    cluster.stop(BEGINS)
    eventually(lambda: cluster.state(STAYS)[0], STAYS)
