"""Writes the reference pages from the code: those of ``docs/reference``, and ``configuration.md`` and ``metrics.md``.

``make docs`` runs it; ``tests/test_docs.py`` fails when a page is stale or an option has no meaning written down here.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pathlib
from collections.abc import Iterator
from typing import Any

import typer.main
from manager_pages import log_manager_page, metadata_manager_page
from pydantic_core import PydanticUndefined
from tables import cell, key_table, metric_labels, shown_limits

from pyspark_tierlog.options.source_options import IGNORED, ReadOptions
from tierlog.broker.fetching.fetch_handler import FetchLimits
from tierlog.broker.fetching.fetch_session import SessionLimits
from tierlog.broker.groups.group_config import GroupConfig
from tierlog.broker.replica.replica_config import ReplicaConfig
from tierlog.broker.server.server_config import ServerConfig
from tierlog.cli.app import application
from tierlog.config_keys import Key, rows
from tierlog.log.local.log_config import CleanerConfig, LogConfig, LogDirectoryConfig
from tierlog.log.local.log_metrics import LOG_SERIES
from tierlog.remote.config.class_loading import BACKENDS, CHUNK_CACHES, CREDENTIALS_PROVIDERS, STORAGE_MANAGERS
from tierlog.remote.config.keys import KEY_GROUPS, PAIRS, PRIVATE_KEY_FILE, PUBLIC_KEY_FILE
from tierlog.remote.config.storage_config import NEVER_READ, OLDER_PREFIXES
from tierlog.remote.storage import storage_metrics as storage
from tierlog.runtime.stores.settings.keys import KEYS_BY_SCHEME, ClientKeys, OwnKeys
from tierlog.sidecar.sidecar_config import SidecarConfig, SidecarServing

HERE = pathlib.Path(__file__).resolve().parent
GENERATED = "<!-- written by docs/generate.py: change the code, then run `make docs` -->\n"

# Options that every command has, or that depend on the reader's shell.
SHELL_OPTIONS = {"--help", "--install-completion", "--show-completion"}

# field of ReadOptions -> (values, meaning)
MEANINGS: dict[str, tuple[str, str]] = {
    "paths": (
        "URL or local path",
        "The bucket or a prefix in it (also `abfss://…`), or a log directory of a broker. Several: `load([p, q])`.",
    ),
    "mode": (
        "`remote-only`, `remote-preferred`, `local-preferred`, `local-only`",
        (
            "The tier alone; the tier, then the brokers of `kafka.bootstrap.servers`; the brokers' local logs, and the "
            "tier for what is older; the brokers alone. See [spark.md](../spark.md#tier-and-brokers)."
        ),
    ),
    "layout": (
        "`auto`, `aiven`, `kafka`, `log-dir`, `local-tiered`",
        "How the objects are laid out; `auto` finds out.",
    ),
    "table": ("`records`, `batches`, `segments`, `transactions`", "The table to read: what a row stands for."),
    "subscribe": (
        "topics, by comma",
        "Topics to read, each once. `<topic id>:<topic>` where a bucket holds two of a name.",
    ),
    "subscribe_pattern": (
        "regular expression of Java's",
        "Topics in whose name it is found, as the Kafka source finds it: `^orders$` is a whole name; no internal ones.",
    ),
    "assign": (
        '`{"topic": [0, 1]}`',
        "Partitions to read. Exactly one of `subscribe`, `subscribePattern`, `assign` is needed.",
    ),
    "starting_offsets": (
        '`earliest`, `latest`, `{"topic": {"0": 23, "1": -2}}`',
        "First offset of each partition; -2 is earliest, -1 latest. Default: earliest; of a stream latest.",
    ),
    "ending_offsets": ('`latest`, `{"topic": {"0": 99, "1": -1}}`', "Where to end, **exclusive**; -1 is latest."),
    "starting_timestamp": ("ms since 1970", "Begin each partition at its first record of that time or later."),
    "ending_timestamp": ("ms since 1970", "End each partition before its first record of that time or later."),
    "starting_offsets_by_timestamp": ('`{"topic": {"0": 1735689600000}}`', "As `startingTimestamp`, by partition."),
    "ending_offsets_by_timestamp": ('`{"topic": {"0": 1735689600000}}`', "As `endingTimestamp`, by partition."),
    "starting_offsets_by_timestamp_strategy": ("`error`, `latest`", "What to do if no record is that young."),
    "isolation_level": (
        "`read_uncommitted`, `read_committed`",
        "`read_committed` leaves out aborted transactions and ends at the tier's last stable offset.",
    ),
    "metadata": (
        "path, URL or `host:port`, several parted by commas",
        (
            "What says which segments count: a broker's log directory with folders of `__remote_log_metadata`, one "
            "such folder, a snapshot, or `host:port` of a running Kafka. Nothing is listed then, and deletions under "
            "way are seen."
        ),
    ),
    "log_start_offset": (
        "as `startingOffsets`",
        "Records below were deleted (`DeleteRecords`), which a bucket alone cannot show.",
    ),
    "include_headers": ("`true`, `false`", "Add the column `headers`."),
    "columns": ("names, by comma", "The columns to produce, in this order. Also `headers`, `leaderEpoch`, `segment`."),
    "min_partitions": ("number", "The least number of Spark partitions, down to one batch of records each."),
    "max_records_per_partition": ("number", "The most offsets in a Spark partition."),
    "max_bytes_per_partition": (
        "bytes, or with a unit as `64m`",
        "Target size of a Spark partition, of log bytes before compression and encryption by the plugin.",
    ),
    "max_partitions": (
        "number",
        "The most Spark partitions: with it they become larger than the two limits above allow.",
    ),
    "fail_on_data_loss": (
        "`true`, `false`",
        (
            "`false` names damaged and missing data in a warning and skips it, but not whole batches before a cut; the "
            "default fails."
        ),
    ),
    "verify_checksums": ("`true`, `false`", "Check the CRC-32C of every batch that is read."),
    "header_answers": (
        "`true`, `false`",
        (
            "`true`: the jar counts records by headers whose batches were not checked; see "
            "[spark.md](../spark.md#counts-and-extremes-with-the-jar)."
        ),
    ),
    "max_offsets_per_trigger": (
        "offsets",
        "Streams: at most about so many offsets a batch, shared by the partitions as what each has.",
    ),
    "min_offsets_per_trigger": (
        "offsets",
        "Streams: no batch with fewer, unless `maxTriggerDelay` is over.",
    ),
    "max_trigger_delay": (
        "`500ms`, `30s`, `15m`, `1h`",
        "Streams: time since the last batch after which there is one with fewer than `minOffsetsPerTrigger`.",
    ),
    "refresh_interval": (
        "`500ms`, `30s`, `15m`, `1h`",
        (
            "Streams: how often the bucket is looked at, at most. `spark.read` with the jar: how old the listing of a "
            "`load()` with equal options may be that is taken instead of one of its own; not given: none."
        ),
    ),
    "push_down_predicate": (
        "`true`, `false`",
        "Plan by `where` on partition, offset and timestamp; see [spark.md](../spark.md#what-is-read).",
    ),
    "engine": (
        "`auto`, `jar`, `python`",
        "Which reader runs in the executors: the jar's, if it is on Spark's class path, or Python's.",
    ),
    "planner_python": (
        "path or name",
        "The Python that plans for the jar, on the driver; see [spark.md](../spark.md) for the order without it.",
    ),
    "native_directory": (
        "path",
        "Where the jar unpacks its native library, on driver and executors; else Java's temporary directory.",
    ),
    "off_heap_bytes_per_task": (
        "bytes, or with a unit as `512m`",
        "The most native memory that a task of the jar may hold.",
    ),
    "report_partitioning": (
        "`true`, `false`",
        "The jar makes one task of each Kafka partition and tells Spark: grouping by it needs no shuffle.",
    ),
    "rsm_config_file": (
        "path",
        "The plugin's keys in a file that the driver and the executors can read: `.properties`, JSON or TOML.",
    ),
    "storage_config": ("", "`rsm.*`: the plugin's keys, one by one; `store.*`: the object store's."),
    "metadata_client": ("", "With `metadata` of a running Kafka, as in Spark's Kafka source: how it is reached."),
    "broker_client": ("", "With a `mode` that asks brokers: keys of Kafka's clients, as in Spark's Kafka source."),
}

# Kind of an error -> (what it means, what to do).
ERROR_MEANINGS = (
    (
        "unavailable",
        "the store timed out, throttled or reset, after all tries",
        "nothing, unless it stays: Kafka tries again",
    ),
    ("refused", "the store does not know us, or forbids it", "credentials, rights of the bucket"),
    ("not_found", "an object is gone", "`tierlog verify`, `tierlog orphans`"),
    (
        "corrupt",
        "bytes that are wrong: a bad local segment or index, or a damaged object",
        "`tierlog verify` of the log directory or of the bucket",
    ),
    ("file", "a local file of the segment that is copied is gone, or cannot be read", "the broker's disk"),
    ("range", "positions that the segment does not have", "the caller, or the index that it went by"),
    ("key", "a segment under a key that the ring does not have", "put the key back"),
    (
        "deadline",
        "a copy took longer than its deadline and was called off",
        "the log line of running copies says phase and part",
    ),
    ("memory", "this process could not get memory", "smaller upload buffers, a smaller `chunk.size`"),
    ("store", "the store or a disk said no for good (disk full, bucket gone)", "its message"),
    ("other", "anything else", "the log has the stack trace"),
)

METRICS_PAGE = """# Metrics of the storage manager

All series are there from the start, at zero. Units are base units (seconds, bytes), counters end with `_total`. The
last column names what the Aiven plugin exposes over JMX (domains `aiven.kafka.server.tieredstorage`, `….cache`, `….s3`,
`….gcs`, `….azure`), for boards that are to be carried over: `rate` and `avg` of JMX are `rate()` and a quotient of
`_sum` and `_count` in Prometheus.

| series | kind | label | meaning | the plugin's |
| --- | --- | --- | --- | --- |
{rows}

`errors_total` has the operations {operations} and these kinds:

| kind | what it means | what to do |
| --- | --- | --- |
{kinds}

## By topic and partition

With `metrics.recording.level=DEBUG` (or `TRACE`), and not without, these are there too, each with the labels `topic`
and `partition`, from the first event of a partition on; sum them for a topic. The first {partitions_max} partitions
that a manager meets are told apart; all further ones count together under the topic `{others}`, so that memory has a
bound. A partition that is copied, read and deleted has about 25 of them, each with its `_created`: look at what your
Prometheus takes before you turn this on.

| series | kind | further label | meaning | the plugin's |
| --- | --- | --- | --- | --- |
{partition_rows}
"""

CONFIGURATION_HEAD = """# Configuration of the storage manager

Every key, whoever reads it: a broker's storage manager, `tierlog copy`, or a reader of the bucket, which needs few of
them ([reaching-a-bucket.md](reaching-a-bucket.md)). The keys, units, ranges and defaults are those of the Aiven plugin,
so that the `rsm.config.*` part of a broker's configuration works as it stands; keys marked **ours** are Tierlog's, and
the plugin does not know them. Keys marked **live** can be changed while a storage manager runs.

In a broker's file each key carries `remote.log.storage.manager.impl.prefix`, by default `rsm.config.`; elsewhere `rsm.`
alone or nothing may stand in front. Keys match without case. An unknown key is an error that names the nearest known
one, values that contradict each other are an error, and no message quotes a secret.
"""
SCHEMES = {"s3": "S3", "gs": "Google", "az": "Azure"}


def default_text(name: str) -> str:
    value = ReadOptions.model_fields[name].default
    if value is PydanticUndefined:
        return "required"
    if value is None or name in ("storage_config", "metadata_client"):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if name in ("max_bytes_per_partition", "off_heap_bytes_per_task"):
        return f"{value >> 20} MiB"
    if name in ("max_trigger_delay", "refresh_interval"):
        return f"`{value // 1000}s`"
    return f"`{value}`"


def option_name(name: str) -> str:
    shown = {"paths": "path", "storage_config": "rsm.*, store.*"}
    shown["metadata_client"] = "kafka.security.*, kafka.sasl.*, kafka.ssl.*"
    shown["broker_client"] = "kafka.*"
    return shown.get(name) or ReadOptions.model_fields[name].alias or name


def spark_options() -> str:
    lines = [
        GENERATED,
        "# Options of the Spark source\n",
        "Names match without case, and so do words as `true`. An option that is unknown, malformed or contradicts",
        "another is an error that names the nearest known one.\n",
        "| option | values | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for name in ReadOptions.model_fields:
        values, meaning = MEANINGS[name]
        lines.append(f"| `{option_name(name)}` | {values} | {default_text(name)} | {meaning} |")
    ignored = ", ".join(f"`{name}`" for name in IGNORED)
    lines.append(
        "\nIn mode `remote-only` accepted and ignored with one warning, so that a job moves over from Spark's Kafka "
        f"source: other `kafka.*`, {ignored}."
    )
    return "\n".join(lines) + "\n"


def command_line() -> str:
    command = typer.main.get_command(application())
    return "\n".join([GENERATED, *command_page(command, "tierlog", depth=1)]).rstrip() + "\n"


# Older Typers stand on Click, newer ones carry their own: what is used here both have.
def command_page(command: Any, path: str, *, depth: int) -> Iterator[str]:
    """The text, the arguments and the options of a command, then of those below it."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [
        p for p in command.params if p.param_type_name == "option" and not p.hidden and SHELL_OPTIONS.isdisjoint(p.opts)
    ]
    below = getattr(command, "commands", {})
    words = [path, "[OPTIONS]" if options else "", *[usage(each) for each in arguments], "COMMAND …" if below else ""]
    yield f"{'#' * depth} {path}\n"
    yield f"```\n{' '.join(word for word in words if word)}\n```\n"
    if command.help:
        yield f"{inspect.cleandoc(command.help)}\n"
    rows = [f"| `{usage(each)}` | {cell(each.help)} |" for each in arguments]
    rows += [f"| `{usage(each)}` | {cell(each.help)}{default_note(each)} |" for each in options]
    if rows:
        yield "| | |\n| --- | --- |"
        yield from [*rows, ""]
    for name in sorted(below):
        if not below[name].hidden:
            yield from command_page(below[name], f"{path} {name}", depth=depth + 1)


def usage(parameter: Any) -> str:
    choices = type(parameter.default) if isinstance(parameter.default, enum.Enum) else ()
    value = parameter.metavar or "/".join(str(each.value) for each in choices) or "VALUE"
    if parameter.param_type_name == "argument":
        value = value.rstrip(".")
        many = "…" if parameter.nargs == -1 else ""
        return f"{value}{many}" if parameter.required else f"[{value}]{many}"
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {value}"


def default_note(parameter: Any) -> str:
    value = getattr(parameter.default, "value", parameter.default)
    if parameter.is_flag or not isinstance(value, str | int | float) or value == "":
        return ""
    return f" Default: `{value}`."


LOG_HEAD = """# Keys of a local log

Kafka 4.3's, with its defaults and limits; those marked **ours** are Tierlog's. `LogConfig.from_kafka` takes a topic's
keys and the broker's names for them, of which the first that is given counts, the topic's before all;
`LogDirectoryConfig.from_kafka` and `CleanerConfig.from_kafka` take the broker's own. One mapping may hold all. An
unknown key is an error that names the nearest known one. In code, a key is a field with `_` for each `.`.

## Of a topic

| key | broker's names | default | allowed | meaning |
| --- | --- | --- | --- | --- |
"""
LOG_TIERING = """
`internal.segment.bytes` is `segment.bytes` without its minimum, and wins over it. Values in hours and minutes are those
of the key times as many milliseconds.

Of a topic with `remote.storage.enable=true`: `cleanup.policy` is `delete` or empty; where `retention.bytes` or
`retention.ms` has a limit, `local.retention.*` is -2 or no more than that; with `remote.log.copy.disable=true` it is -2
or equal. `remote.storage.enable` goes back to false with `remote.log.delete.on.disable=true` alone.

## Of a log directory

| key | default | allowed | meaning |
| --- | --- | --- | --- |
"""

LOG_CLEANER = """
## Of the log cleaner

`LogCleaner.reconfigure` changes those marked **live** while it runs, the number of threads to half and to the double at
most.

"""
CLEANER_METRICS = """
## Metrics

Gauges, of Kafka's meanings, which `LogCleanerMetrics` and `LogDirectoriesMetrics` collect.

| series | label | meaning | Kafka's |
| --- | --- | --- | --- |
"""


def log_page() -> str:
    """The keys of a local log."""
    topics = "".join(
        f"| `{key.name}`{' **ours**' if key.own else ''} | {', '.join(f'`{name}`' for name in key.other_names)} "
        f"| {log_default(key)} | {shown_limits(key)} | {key.meaning} |\n"
        for key in rows(LogConfig).values()
    )
    directories, cleaners = ("\n".join(key_table(table)) + "\n" for table in (LogDirectoryConfig, CleanerConfig))
    series = (f"| `{s.full_name}` | {s.label or '–'} | {s.text} | {s.jmx} |\n" for s in LOG_SERIES)
    return LOG_HEAD + topics + LOG_TIERING + directories + LOG_CLEANER + cleaners + CLEANER_METRICS + "".join(series)


def log_default(key: Key) -> str:
    return "2^63-1" if key.default == 2**63 - 1 else key.shown(key.default) or "empty"


SERVER_HEAD = """# Keys of the server

Keys of a broker that `tierlog replica` takes from `--config`, with Kafka's defaults where they say nothing else; those
marked **ours** Kafka does not have. More about them is on [server.md](../server.md#limits). `sasl.enabled.mechanisms`
is one of them too: a list of `SCRAM-SHA-512`, `SCRAM-SHA-256` and `PLAIN`, by default all three.
"""
SERVER_TABLES: dict[str, tuple[type[object], ...]] = {
    "Connections and requests": (ServerConfig,),
    "Fetch": (FetchLimits, SessionLimits, ReplicaConfig),
    "Groups": (GroupConfig,),
}


def server_page() -> str:
    """The keys of a server of Kafka's protocol."""
    parts = (f"## {title}\n\n" + "\n".join(key_table(*tables)) for title, tables in SERVER_TABLES.items())
    return SERVER_HEAD + "\n" + "\n\n".join(parts) + "\n"


SIDECAR_HEAD = """# Keys of the sidecar

Keys that `tierlog sidecar` takes from `--config`, beside the storage manager's
([configuration.md](../configuration.md)); Kafka has those that are not marked **ours**.
"""


def sidecar_page() -> str:
    """The keys of a sidecar."""
    return SIDECAR_HEAD + "\n" + "\n".join(key_table(SidecarConfig, SidecarServing)) + "\n"


NAMES_HEAD = """# Public names of Python

Names that keep their place and meaning from one version to the next, by the package that they are imported from; the
docstrings say the rest (`help(name)`). `dir()` of a package lists the same.
"""
NAMES_ROOMS = ("", "records", "log", "log.formats", "log.local", "replication", "remote", "upkeep", "aio", "testing")


def names_page() -> str:
    """The public names of the packages, each with the first sentence of its docstring."""
    text = NAMES_HEAD
    for room in (importlib.import_module(f"tierlog.{room}".rstrip(".")) for room in NAMES_ROOMS):
        text += f"\n## `{room.__name__}`\n\n| name | what it is |\n| --- | --- |\n"
        for name in sorted(room.__all__):
            value = getattr(room, name)
            is_alias = isinstance(value, type) or hasattr(value, "__args__")
            told = "Another name, for annotations." if is_alias else "A constant."
            if getattr(value, "__name__", "").rpartition(".")[2] == name:
                told = value.__doc__.partition("\n\n")[0]
                told = "Native code: its stub has the docstring." if told.startswith(f"{name}(") else told
            text += f"| `{name}` | {cell(told)} |\n"
    return text


def metrics_page() -> str:
    """The text of the page."""
    rows = [
        f"| `{s.full_name}` | {s.kind} | {metric_labels(s)} | {s.text} | {s.jmx or '–'} |"
        for s in (*storage.SERIES, storage.REQUESTS, storage.STORE_INFO, storage.ERRORS)
    ]
    partition_rows = [
        f"| `{storage.PARTITION_PREFIX}{name}` | counter | {f'`{label}`' if label else '–'} | {text} | {jmx or '–'} |"
        for name, label, text, jmx in storage.PARTITION_SERIES
    ]
    return METRICS_PAGE.format(
        rows="\n".join(rows),
        partition_rows="\n".join(partition_rows),
        partitions_max=storage.PARTITIONS_MAX,
        others=storage.OTHERS[0],
        operations=", ".join(f"`{o}`" for o in storage.OPERATIONS),
        kinds="\n".join(f"| `{kind}` | {meaning} | {remedy} |" for kind, meaning, remedy in ERROR_MEANINGS),
    )


def pages() -> dict[pathlib.Path, str]:
    """Each generated page and what it should hold."""
    return {
        HERE / "configuration.md": f"{GENERATED}{configuration_page()}",
        HERE / "metrics.md": f"{GENERATED}{metrics_page()}",
        HERE / "reference" / "cli.md": command_line(),
        HERE / "reference" / "log-manager.md": f"{GENERATED}{log_manager_page()}",
        HERE / "reference" / "log-config.md": f"{GENERATED}{log_page()}",
        HERE / "reference" / "metadata-manager.md": f"{GENERATED}{metadata_manager_page()}",
        HERE / "reference" / "python-names.md": f"{GENERATED}{names_page()}",
        HERE / "reference" / "server-keys.md": f"{GENERATED}{server_page()}",
        HERE / "reference" / "sidecar-keys.md": f"{GENERATED}{sidecar_page()}",
        HERE / "reference" / "spark-options.md": spark_options(),
    }


def main() -> None:
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def configuration_page() -> str:
    """The text of the page."""
    lines = [CONFIGURATION_HEAD]
    for title, group in KEY_GROUPS.items():
        lines += [f"## {title}\n", *key_table(group)]
        if PAIRS in (key.name for key in rows(group).values()):
            lines += _pair_rows()
        lines.append("")
    lines += list(_store_keys())
    lines += list(_other_keys())
    return "\n".join(lines).rstrip() + "\n"


def _pair_rows() -> list[str]:
    needed = "PEM or DER, unencrypted, at least 1296 bits"
    return [
        f"| `{PAIRS}.<id>.{PRIVATE_KEY_FILE}` | text | – | path | Private key of an id: {needed}. Every id needs it. |",
        f"| `{PAIRS}.<id>.{PUBLIC_KEY_FILE}` | text | – | path | Public key of an id. Every id needs it to write. |",
    ]


def _store_keys() -> Iterator[str]:
    yield "## The object store's client\n"
    yield "All **ours**, and over `storage.*` of the same meaning. Most are those of"
    yield "[obstore](https://developmentseed.org/obstore/), which also takes a store's own keys with its brand in front"
    yield "(`store.aws_region`) and finds what is not given in its environment variables (`AWS_REGION`). How they are"
    yield "used is on [reaching-a-bucket.md](reaching-a-bucket.md).\n"
    groups = {"Every store": (OwnKeys, ClientKeys)} | {SCHEMES[name]: (keys,) for name, keys in KEYS_BY_SCHEME.items()}
    yield "| key | of | default | allowed | meaning |\n| --- | --- | --- | --- | --- |"
    for of, tables in groups.items():
        for name, key in (each for table in tables for each in rows(table).items()):
            default = "–" if key.default is None else f"`{key.shown(key.default)}`"
            yield f"| `store.{name}` | {of} | {default} | {shown_limits(key)} | {key.meaning} |"
    yield ""


def _other_keys() -> Iterator[str]:
    yield "## Beside these\n"
    yield "| key | meaning |\n| --- | --- |"
    yield "| `rsm.config.file` | A file with more keys (`.properties`, JSON, TOML), over which the given ones win. |"
    stores = "[third-party-stores.md](third-party-stores.md)"
    yield f"| `storage.<key>` | With a store of a third party's, its own keys: {stores}. |"
    yield "| `iceberg.catalog.*`, `structure.provider.serde.*`, `remote.log.*` | Accepted, without effect here. |"
    yield "\n## Older spellings\n"
    yield "Accepted, with a warning that names today's.\n"
    yield "| spelling | today's |\n| --- | --- |"
    for older, todays in OLDER_PREFIXES.items():
        yield f"| `{older}*` | `{todays}*` |"
    yield f"| `{NEVER_READ}` | `key.prefix`; the older one is not used, as no release of the plugin ever read it |"
    yield "\n## Java classes\n"
    yield "A class that is not listed is an error, not another store, cache or source of credentials.\n"
    yield "| class | here |\n| --- | --- |"
    for names in (STORAGE_MANAGERS, BACKENDS, CHUNK_CACHES, CREDENTIALS_PROVIDERS):
        for java, ours in names.items():
            yield f"| `{java}` | `{ours}` |"


if __name__ == "__main__":
    main()
