"""Topics of a real broker: filled from ``bench.data``, and tiered by the plugin or by Kafka's own manager."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from bench.storage_sides import folder_keys, form_keys
from tests.support.peers import broker, install, plugin

GIGABYTES = 2
VALUE_BYTES, BATCH_BYTES, PARTITIONS = 1000, 1_000_000, 4
SEGMENT_BYTES = 64 << 20
PATIENCE_SECONDS = 600.0
_MONTH_MS = 30 * 24 * 3600 * 1000


def fill(
    running: broker.Broker,
    topic: str,
    codec: str,
    size_bytes: int,
    *,
    value_bytes: int = VALUE_BYTES,
    partitions: int = PARTITIONS,
    settings: Sequence[str] = (),
) -> None:
    """Make a topic unless it is there, with ``key=value`` of its settings, and produce about so many bytes."""
    print(f"producing {topic}: {size_bytes} bytes", file=sys.stderr)
    told = [running.bootstrap, topic, codec, size_bytes, value_bytes, partitions, BATCH_BYTES, *settings]
    _run(*map(str, told))


def roll(running: broker.Broker, topic: str, partitions: int) -> None:
    """Close the active segment of each partition: one record is in the next."""
    _run("roll", running.bootstrap, topic, str(partitions))


def _run(*words: str) -> None:
    command = [str(install.python()), "-m", "bench.peers.produce", *words]
    subprocess.run(command, check=True, env=install.environment(), cwd=install.ROOT, stdout=sys.stderr)


# ---- a tier


def plugin_keys(form: str, root: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """The plugin's keys, without their prefix; key files are copied into the folder."""
    return plugin.with_pem_keys(form_keys(form) | folder_keys(root) | {"key.prefix": "tier/"}, folder)


def broker_settings(form: str, root: pathlib.Path, folder: pathlib.Path, cache_bytes: int = 0) -> dict[str, str]:
    """Settings of a broker that tiers at once and deletes closed segments locally, with a chunk cache of the plugin's
    or none.

    The tier is the plugin's where TIERLOG_PLUGIN_JARS names its jars, else that of Kafka's LocalTieredStorage, which
    knows plain objects alone.
    """
    if plugin.jars():
        keys = plugin_keys(form, root, folder)
        if cache_bytes:
            keys["fetch.chunk.cache.class"] = "io.aiven.kafka.tieredstorage.fetch.cache.MemoryChunkCache"
            keys["fetch.chunk.cache.size"] = str(cache_bytes)
            keys["fetch.chunk.cache.prefetch.max.size"] = str(16 << 20)
        manager, jars = plugin.MANAGER, ":".join(map(str, plugin.jars()))
    else:
        print(f"{plugin.HOW}; the tier is Kafka's LocalTieredStorage", file=sys.stderr)
        keys = {"dir": str(root)}
        manager = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        jars = install.class_path("kafka-tier")
    return tier_settings(manager, jars, keys)


def tier_settings(manager: str, jars: str, keys: Mapping[str, str]) -> dict[str, str]:
    """Settings of a broker that tiers at once by a storage manager, with its keys."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "1000",
        "log.retention.check.interval.ms": "1000",
        "remote.log.storage.manager.class.name": manager,
        "remote.log.storage.manager.class.path": jars,
        **{f"rsm.config.{name}": value for name, value in keys.items()},
    }


def our_options(form: str, root: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """The options with which ours reads that tier."""
    if not plugin.jars():
        return {}
    return {f"rsm.config.{name}": value for name, value in plugin_keys(form, root, folder).items() if "encrypt" in name}


def segment_settings(scale: float) -> tuple[str, ...]:
    """The configuration of a topic whose segments close by size alone."""
    size = max(1 << 20, int(SEGMENT_BYTES * min(1, 4 * scale)))
    return f"segment.ms={_MONTH_MS}", f"segment.bytes={size}", "file.delete.delay.ms=500"


def fill_tier(running: broker.Broker, topic: str, codec: str, scale: float) -> dict[str, int]:
    """Produce, and wait until one record a partition is left on the broker's disk: partition to its offset."""
    settings = ("remote.storage.enable=true", "local.retention.bytes=1", *segment_settings(scale))
    fill(running, topic, codec, int(GIGABYTES * 1e9 * scale), settings=settings)
    roll(running, topic, PARTITIONS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        left = {number: _left(running.log_dir / f"{topic}-{number}") for number in range(PARTITIONS)}
        if all(len(segments) == 1 and segments[0] > 0 for segments in left.values()):
            return {str(partition): segments[0] for partition, segments in left.items()}
        if time.monotonic() > deadline:
            raise SystemExit(f"{topic}: closed segments are still on the broker's disk: {left}")
        time.sleep(1)


def _left(folder: pathlib.Path) -> list[int]:
    """Base offsets of local segments, ones that wait for their deletion among them."""
    return sorted(int(path.name.split(".")[0]) for path in folder.glob("*.log*"))


def log_bytes(root: pathlib.Path) -> int:
    """Size of the logs as the tier stores them."""
    return sum(path.stat().st_size for path in root.rglob("*.log"))
