"""The reference pages of the managers of a broker: of its RemoteLogManager, and of the metadata manager."""

from __future__ import annotations

from tables import key_table, metric_labels

from tierlog.remote.manager import manager_metrics as manager
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.opened_managers import OpeningKeys
from tierlog.remote.metadata.topic_backed.consumer_task import METADATA_SERIES
from tierlog.remote.metadata.topic_backed.topic_based_config import TopicBasedConfig
from tierlog.remote.storage.storage_metrics import OTHERS

METADATA_HEAD = """# Keys and metrics of the metadata manager

How a broker embeds it is on [embedding-metadata.md](../embedding-metadata.md).

## Keys

Kafka's, with its defaults and ranges; a broker's file has them behind `rlmm.config.`. Keys marked **ours** are
Tierlog's. An unknown key below `remote.log.metadata.` is an error that names the nearest known one.
"""
METADATA_CLIENTS = """
Keys of Kafka's clients, in its own words, are handed to the client without the prefix; those of one client win over
those of all: `remote.log.metadata.common.client.*`, `remote.log.metadata.producer.*`, `remote.log.metadata.consumer.*`,
`remote.log.metadata.admin.*`.

## Metrics

All series are there from the start, at zero.

| series | kind | meaning |
| --- | --- | --- |
"""


MANAGER_HEAD = """# Keys and metrics of the RemoteLogManager

## Keys

Kafka's, with its defaults and limits; those marked **ours** are Tierlog's, those marked **live** can be changed while
the manager runs (`update_config`). An unknown key below `remote.log.manager.` is an error that names the nearest known
one.
"""
TIER_HEAD = """
## Keys that name the managers

`RemoteLogManager.open` takes a broker's whole configuration. Keys of the storage manager are behind `rsm.config.`
([configuration.md](../configuration.md)), those of the metadata manager behind `rlmm.config.`
([metadata-manager.md](metadata-manager.md)).

"""
MANAGER_SERIES_HEAD = """
## Metrics

All series are there from the start, at zero. Lags, sizes and counts are those of the partitions that this broker leads,
as they are when they are collected.

| series | kind | label | meaning | Kafka's |
| --- | --- | --- | --- | --- |
"""
MANAGER_TOPICS_HEAD = """
## Metrics by topic

These are there for each topic too, with the label `topic`, from a topic's first event on, under names that begin with
`{prefix}`. The first {most:,} topics are told apart; all further ones count together under the topic `{others}`.

{names}

## Metrics by partition

With `metrics.recording.level=DEBUG` (or `TRACE`), with the labels `topic` and `partition`, of {partitions:,} partitions
that this broker leads.

| series | meaning | Kafka's |
| --- | --- | --- |
"""


def log_manager_page() -> str:
    """The keys and the series of the RemoteLogManager."""
    series = "".join(
        f"| `{s.full_name}` | {s.kind} | {metric_labels(s)} | {s.text} | {s.jmx or '–'} |\n"
        for s in manager.MANAGER_SERIES
    )
    topics = MANAGER_TOPICS_HEAD.format(
        prefix=manager.TOPIC_PREFIX,
        most=manager.TOPICS_MAX,
        others=OTHERS[0],
        partitions=manager.PARTITIONS_MAX,
        names=", ".join(
            f"`{s.full_name.replace(manager.MANAGER_PREFIX, manager.TOPIC_PREFIX)}`"
            for s in (*manager.COUNTERS, *manager.LAGS)
        ),
    )
    partitions = "".join(
        f"| `{s.full_name.replace(manager.MANAGER_PREFIX, manager.PARTITION_PREFIX)}` | {s.text} | {s.jmx} |\n"
        for s in manager.PARTITION_SERIES
    )
    keys, names = ("\n".join(key_table(table)) + "\n" for table in (RemoteLogManagerConfig, OpeningKeys))
    return MANAGER_HEAD + "\n" + keys + TIER_HEAD + names + MANAGER_SERIES_HEAD + series + topics + partitions


def metadata_manager_page() -> str:
    """The keys and the series of the metadata manager."""
    series = "".join(f"| `{s.full_name}` | {s.kind} | {s.text} |\n" for s in METADATA_SERIES)
    return METADATA_HEAD + "\n" + "\n".join(key_table(TopicBasedConfig)) + "\n" + METADATA_CLIENTS + series
