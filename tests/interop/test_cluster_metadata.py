"""Readers by the metadata topic of a running Kafka."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

import tierlog
from tests.conftest import DATA
from tests.support.command import Run
from tests.support.command import tierlog as command  # noqa: F401 - a fixture
from tests.support.golden import metadata_folders
from tests.support.metadata_cluster import manager_config, needs_a_broker
from tests.support.peers import broker
from tierlog.errors import ConfigError
from tierlog.records.decoding import decode
from tierlog.remote.api import RemoteStorageException
from tierlog.remote.metadata.metadata_source import open_metadata
from tierlog.remote.metadata.topic_backed.kafka_metadata_log import KafkaMetadataLogs

pytestmark = pytest.mark.interop

RUN = DATA / "main-plain"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster whose topic has the records of the golden data, each in the partition that it had there."""
    needs_a_broker()
    with broker.running(tmp_path_factory.mktemp("broker"), heap="512m") as running:
        config = manager_config(running.bootstrap, tmp_path_factory.mktemp("manager"))
        with KafkaMetadataLogs(config).open(timeout_seconds=60) as log:
            told = []
            for path in sorted(pathlib.Path(metadata_folders(RUN)[0]).glob("__remote_log_metadata-*/*.log")):
                partition = int(path.parent.name.rpartition("-")[2])
                values = decode(path.read_bytes(), columns=("value",)).column("value").to_pylist()
                told += [log.append(partition, value) for value in values]
            for future in told:
                future.result(30)
        yield running.bootstrap


def test_the_same_as_the_topics_files(bootstrap: str) -> None:
    """Else what a running cluster says of a segment is another thing than what its disks say."""
    with (
        open_metadata(metadata_folders(RUN), remember_departed=True) as files,
        open_metadata(bootstrap, remember_departed=True) as cluster,
    ):
        assert sorted(cluster.partitions()) == sorted(files.partitions())
        for partition in files.partitions():
            assert list(cluster.readable(partition)) == list(files.readable(partition))
            assert cluster.newest_record_ms(partition) > 0
        known = {segment.remote_log_segment_id for segment in files.segments()}
        assert {segment.remote_log_segment_id for segment in cluster.segments()} == known
        assert all(cluster.last_state(each) is files.last_state(each) for each in known)


def test_reads_by_it(bootstrap: str, command: Run) -> None:  # noqa: F811
    """Else the one source that is never out of date cannot be given to a read."""
    plain = tierlog.read(RUN / "objects", "fx-txn").read_all()
    assert tierlog.read(RUN / "objects", "fx-txn", metadata=bootstrap).read_all().equals(plain)
    shown = command("cat", RUN / "objects", "fx-txn", "--count", "--metadata", bootstrap)
    assert (shown.code, shown.text.strip()) == (0, str(plain.num_rows))
    compared = command("ls", RUN / "objects", "fx-txn", "--metadata", bootstrap, "--output", "json")
    assert compared.code == 0
    assert {row["in"] for row in compared.lines} == {"both"}


def test_what_cannot_be_reached_or_added(bootstrap: str, tmp_path: pathlib.Path) -> None:
    """Else a wrong address waits for ever, or a second source is silently left out."""
    with pytest.raises(ConfigError, match="no other source"):
        open_metadata([bootstrap, metadata_folders(RUN)[0]])
    with pytest.raises((RemoteStorageException, ConfigError)):
        open_metadata("localhost:1")
    with pytest.raises(ConfigError):
        open_metadata(bootstrap, client_keys={"security.protocl": "SSL"})
