"""The options of ``spark.read.format("tierlog")``, checked before anything is read.

Names and meanings are those of Spark's Kafka source if it has the option. Spark passes option names in lower case, so
they match without case. Options of the Kafka source that have no use here are accepted and named in one warning; any
other name is an error that names the nearest known option. Values of ``store.*`` and ``rsm.*`` may be secrets: they are
in no message and in no ``repr``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from pyspark_tierlog.options.java_patterns import name_pattern
from pyspark_tierlog.options.offset_options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    PartitionNumbers,
    TopicPartition,
    parse_assignment,
    parse_columns,
    parse_duration_ms,
    parse_flag,
    parse_names,
    parse_offsets,
    parse_size_bytes,
    parse_timestamps,
)
from pyspark_tierlog.options.storage_options import storage_config
from tierlog.errors import ConfigError

STRATEGIES = ("subscribe", "subscribePattern", "assign")
IGNORED = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
"""Options of Spark's Kafka source that mean nothing without a broker."""

_OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_OF_KEPT_LISTINGS = "refreshInterval"
_OF_BATCHES = (
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "pushDownPredicate",
    "reportPartitioning",
)

_OF_RECORDS = ("kafka.isolation.level", "maxRecordsPerPartition", "headerAnswers")
_OF_LOGS = (
    *(f"{side}{kind}" for side in ("starting", "ending") for kind in ("Offsets", "Timestamp", "OffsetsByTimestamp")),
    *("startingOffsetsByTimestampStrategy", "minPartitions", "maxBytesPerPartition", "maxPartitions"),
    "verifyChecksums",
)
_BESIDE_THE_POINT = {
    "batches": _OF_RECORDS,
    "segments": (*_OF_RECORDS, *_OF_LOGS),
    "transactions": (*_OF_RECORDS, *_OF_LOGS),
}
"""Options that say nothing about the rows of a table: batches are whole, the others come from descriptions alone."""

PREFIXES = ("rsm.", "store.")
_CLIENT_PREFIXES = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
"""How the Kafka is reached that ``metadata`` names; without it they are ignored, as all ``kafka.*``."""

_BOOTSTRAP = "kafka.bootstrap.servers"
_OF_THE_TIER = ("logStartOffset", "headerAnswers", "reportPartitioning", "maxRecordsPerPartition")
"""Options that brokers cannot obey."""
COLUMNS_OF_THE_TIER = ("leaderEpoch", "segment")
"""Columns that records of brokers come without."""


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


Word = BeforeValidator(_lower)


def _parsed(parse: Callable[[str], object]) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


Flag = Annotated[bool, _parsed(parse_flag)]
Offsets = Annotated[Literal["earliest", "latest"] | PartitionNumbers, _parsed(parse_offsets)]
Timestamps = Annotated[PartitionNumbers, _parsed(parse_timestamps)]
Duration = Annotated[int, _parsed(parse_duration_ms)]


class ReadOptions(BaseModel):
    """The options of one ``load()``.

    Built by :func:`parse_options`; each field is the option of the same name in camelCase (``isolation_level`` is
    ``kafka.isolation.level``). ``None`` means that the option was not given. Offsets ending a range are **exclusive**,
    as in Spark's Kafka source.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    paths: tuple[str, ...]
    mode: Annotated[Literal["remote-only", "remote-preferred", "local-preferred", "local-only"], Word] = "remote-only"
    layout: Annotated[Literal["auto", "aiven", "kafka", "log-dir", "local-tiered"], Word] = "auto"
    table: Annotated[Literal["records", "batches", "segments", "transactions"], Word] = "records"
    subscribe: Annotated[tuple[str, ...] | None, _parsed(parse_names)] = None
    subscribe_pattern: str | None = None
    assign: Annotated[frozenset[TopicPartition] | None, _parsed(parse_assignment)] = None
    starting_offsets: Offsets | None = None
    ending_offsets: Offsets = "latest"
    starting_timestamp: int | None = Field(None, ge=0)
    ending_timestamp: int | None = Field(None, ge=0)
    starting_offsets_by_timestamp: Timestamps | None = None
    ending_offsets_by_timestamp: Timestamps | None = None
    starting_offsets_by_timestamp_strategy: Annotated[Literal["error", "latest"], Word] = "error"
    isolation_level: Annotated[Literal["read_uncommitted", "read_committed"], Word] = Field(
        "read_uncommitted", alias="kafka.isolation.level"
    )
    metadata: Annotated[tuple[str, ...] | None, _parsed(parse_names)] = None
    log_start_offset: Offsets | None = None
    include_headers: Flag | None = None
    columns: Annotated[tuple[str, ...] | None, _parsed(parse_columns)] = None
    min_partitions: PositiveInt | None = None
    max_records_per_partition: PositiveInt | None = None
    max_bytes_per_partition: Annotated[int, _parsed(parse_size_bytes)] = 128 << 20
    max_partitions: PositiveInt = 100_000
    fail_on_data_loss: Flag = True
    verify_checksums: Flag = True
    header_answers: Flag = False
    push_down_predicate: Flag | None = None
    max_offsets_per_trigger: PositiveInt | None = None
    min_offsets_per_trigger: PositiveInt | None = None
    max_trigger_delay: Duration = 15 * 60 * 1000
    refresh_interval: Duration = 10_000
    engine: Annotated[Literal["auto", "jar", "python"], Word] = "auto"
    planner_python: str | None = None
    native_directory: str | None = None
    off_heap_bytes_per_task: Annotated[int, _parsed(parse_size_bytes)] = 512 << 20
    report_partitioning: Flag = False
    rsm_config_file: str | None = Field(None, alias="rsm.config.file")
    storage_config: Mapping[str, SecretStr] = Field({}, repr=False)
    metadata_client: Mapping[str, SecretStr] = Field({}, repr=False)
    broker_client: Mapping[str, SecretStr] = Field({}, repr=False)

    def first_offsets(self) -> Literal["earliest", "latest"] | PartitionNumbers:
        """Where a batch read begins. Raises ConfigError: where none can."""
        start = "earliest" if self.starting_offsets is None else self.starting_offsets
        if start == "latest" or LATEST_OFFSET in _values_of(start):
            raise ConfigError("startingOffsets can't be latest (-1) for a batch query")
        return start

    def ineffective(self, *, keeps_listings: bool = False) -> str | None:
        """Return a warning about options that a batch read has no use for; None if there are none.

        Args:
            keeps_listings: Whether who reads shares listings among its loads, as the jar does.
        """
        useless = _OF_STREAMS if keeps_listings else (*_OF_STREAMS, _OF_KEPT_LISTINGS)
        return _without_effect(sorted(name for name in useless if _field_name(name) in self.model_fields_set))

    def check_stream(self) -> None:
        """Check the options of a stream.

        Raises:
            ConfigError: one is of batch reads alone, or asks for what a stream cannot give.
        """
        refused = [name for name in _OF_BATCHES if _field_name(name) in self.model_fields_set]
        if refused:
            raise ConfigError(f"option {refused[0]} is not valid in a streaming query")
        if self.table != "records":
            raise ConfigError(f"a stream has the records: table={self.table} is for spark.read")
        if len(self.paths) > 1:
            raise ConfigError("a stream reads one path: its offsets are those of one bucket")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ConfigError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")

    @property
    def trust_headers(self) -> bool:
        """Whether a header may answer for a batch whose checksum is not checked."""
        return self.header_answers or not self.verify_checksums

    @field_validator("subscribe_pattern")
    @classmethod
    def _check_pattern(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value.strip():
            raise ValueError("the pattern is empty")
        name_pattern(value.strip())
        return value.strip()

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        given = [name for name in STRATEGIES if getattr(self, _field_name(name)) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(STRATEGIES)} is needed, got {' and '.join(given) or 'none'}")
        _check_bounds(self)
        if self.metadata and len(self.paths) > 1:
            raise ValueError("metadata says what one bucket holds: load several paths one by one")
        if self.include_headers and self.table != "records":
            raise ValueError(f"includeHeaders belongs to table=records, not to table={self.table}")
        if self.min_partitions is not None and self.min_partitions > self.max_partitions:
            raise ValueError(f"minPartitions {self.min_partitions} is above maxPartitions {self.max_partitions}")
        if self.include_headers is False and "headers" in (self.columns or ()):
            raise ValueError("columns names headers, includeHeaders=false refuses them")
        if self.asks_brokers:
            _check_broker_mode(self)
        return self

    @property
    def asks_brokers(self) -> bool:
        """Whether records are read from brokers, too."""
        return self.mode != "remote-only"


def parse_options(options: Mapping[str, str]) -> tuple[ReadOptions, str | None]:
    """Check the options of one ``load()``.

    Args:
        options: Texts by name, in any case, as Spark passes them.

    Returns:
        The checked options, and a warning about options without effect (None if there are none).

    Raises:
        ConfigError: an option is unknown (the nearest known one is named), malformed, missing, or contradicts another.
            No value of ``store.*`` or ``rsm.*`` is in the message.
    """
    known = {name.lower(): name for name in known_options()}
    values: dict[str, object] = {}
    storage: dict[str, str] = {}
    client: dict[str, SecretStr] = {}
    ignored: list[str] = []
    brokers: dict[str, SecretStr] = {}
    lowered = {key.lower(): text for key, text in options.items()}
    by_metadata = "metadata" in lowered
    asks_brokers = _lower(lowered.get("mode", "remote-only")) != "remote-only"
    for key, text in options.items():
        name = known.get(key.lower())
        if asks_brokers and key.lower().startswith("kafka.") and name is None:
            brokers[key[len("kafka.") :]] = SecretStr(text)
        if by_metadata and key.lower().startswith(_CLIENT_PREFIXES):
            client[key.lower().removeprefix("kafka.")] = SecretStr(text)
        elif name in IGNORED or (name is None and key.lower().startswith("kafka.")):
            if not asks_brokers:
                ignored.append(name or key)
        elif name is not None:
            values[name] = text
        elif key.lower().startswith(PREFIXES):
            storage[key] = text
        else:
            raise ConfigError(_unknown_option(key, known))
    values["paths"] = _take_paths(values)
    values["storageConfig"] = {key: SecretStr(text) for key, text in storage_config(storage).items()}
    values["metadataClient"] = client
    values["brokerClient"] = brokers
    warning = _warning_of(values, sorted(ignored))
    try:
        return ReadOptions.model_validate(values), warning
    except ValidationError as error:
        raise ConfigError("; ".join(_error_line(line) for line in error.errors())) from None


def known_options() -> tuple[str, ...]:
    """Return the names of all options, as users write them, but for the open families ``rsm.*``, ``store.*`` and
    ``kafka.*``.
    """
    families = ("storage_config", "metadata_client", "broker_client")
    fields = [field.alias or name for name, field in ReadOptions.model_fields.items() if name not in families]
    return ("path", *fields, *IGNORED)


def _take_paths(values: dict[str, object]) -> tuple[str, ...]:
    """Take one ``path``, or the JSON list ``paths`` into which Spark turns ``load([a, b])``."""
    path, paths = values.pop("path", None), values.pop("paths", None)
    if path is not None and paths is not None:
        raise ConfigError("options path and paths contradict each other: give one of them")
    if isinstance(paths, str):
        try:
            found = json.loads(paths)
        except (json.JSONDecodeError, RecursionError):
            found = None
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise ConfigError(f'option paths: expected a JSON list of paths as ["s3://a/b","s3://c/d"], got {paths!r}')
        chosen = [_path_of(item) for item in found]
    else:
        chosen = [_path_of(str(path or ""))]
    if not chosen or not all(chosen):
        raise ConfigError("option path is missing: a bucket prefix as s3://bucket/prefix, or a folder")
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"option paths names a path twice: {', '.join(chosen)}")
    return tuple(chosen)


def _path_of(text: str) -> str:
    """Return a path as ``open_tier`` takes it: Spark's catalog and Hadoop write ``file:/folder`` for
    ``file:///folder``.
    """
    path = text.strip()
    return re.sub(r"^file:/(?!/)", "file:///", path)


def _warning_of(values: dict[str, object], ignored: list[str]) -> str | None:
    """Return the warning about options without effect: those of the Kafka source, and the weaker one of two bounds."""
    for start in ("starting", "ending"):
        order = [f"{start}Timestamp", f"{start}OffsetsByTimestamp", f"{start}Offsets"]
        given = [name for name in order if name in values]
        for weaker in given[1:]:
            del values[weaker]
            ignored.append(f"{weaker} (after {given[0]})")
    table = str(values.get("table", "records")).strip().lower()
    ignored += [f"{name} (table={table})" for name in sorted(values.keys() & set(_BESIDE_THE_POINT.get(table, ())))]
    return _without_effect(ignored)


def _without_effect(names: list[str]) -> str | None:
    return f"options without effect here: {', '.join(names)}" if names else None


def _check_bounds(options: ReadOptions) -> None:
    start, end = options.starting_offsets, options.ending_offsets
    if end == "earliest" or EARLIEST_OFFSET in _values_of(end):
        raise ValueError("endingOffsets can't be earliest (-2) for a batch query")
    if options.log_start_offset == "latest" or LATEST_OFFSET in _values_of(options.log_start_offset):
        raise ValueError("logStartOffset can't be latest (-1)")
    for first, last, name in (
        (start, end, "Offsets"),
        (options.starting_offsets_by_timestamp, options.ending_offsets_by_timestamp, "OffsetsByTimestamp"),
    ):
        if not (isinstance(first, Mapping) and isinstance(last, Mapping)):
            continue
        if lonely := sorted(f"{topic}-{partition}" for topic, partition in first.keys() ^ last.keys()):
            raise ValueError(f"starting{name} and ending{name} name different partitions: {', '.join(lonely)}")
        for (topic, partition), number in first.items():
            if 0 <= last[topic, partition] < number:
                raise ValueError(
                    f"starting{name} of {topic}-{partition} is {number}, behind ending{name} {last[topic, partition]}"
                )
    timestamps = options.starting_timestamp, options.ending_timestamp
    if timestamps[0] is not None and timestamps[1] is not None and timestamps[0] > timestamps[1]:
        raise ValueError(f"startingTimestamp {timestamps[0]} is behind endingTimestamp {timestamps[1]}")


def _check_broker_mode(options: ReadOptions) -> None:
    """Check options that ask for brokers, too. Raises ValueError: brokers cannot obey one, or it is missing."""
    mode = f"mode={options.mode}"
    if not any(key.lower() == "bootstrap.servers" for key in options.broker_client):
        raise ValueError(f"{mode} reads from brokers: {_BOOTSTRAP} names them")
    if options.table != "records":
        raise ValueError(f"{mode} reads records, table={options.table} is of the tier alone")
    if len(options.paths) > 1:
        raise ValueError(f"{mode} reads one path: its offsets are those of one cluster")
    refused = [name for name in _OF_THE_TIER if _field_name(name) in options.model_fields_set]
    if refused:
        raise ValueError(f"{refused[0]} is of the tier alone, {mode} reads from brokers, too")
    lacking = [name for name in options.columns or () if name in COLUMNS_OF_THE_TIER]
    if lacking:
        raise ValueError(f"columns names {lacking[0]}, which {mode} does not have: records of brokers come without")


def _values_of(bound: str | PartitionNumbers | None) -> tuple[int, ...]:
    return tuple(bound.values()) if isinstance(bound, Mapping) else ()


def _field_name(alias: str) -> str:
    return next(name for name, field in ReadOptions.model_fields.items() if field.alias == alias)


def _unknown_option(key: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    return f"unknown option {key!r}" + (f"; did you mean {known[near[0]]!r}?" if near else "")


def _error_line(error: ErrorDetails) -> str:
    message = error["msg"].removeprefix("Value error, ")
    return f"option {error['loc'][0]}: {message}" if error["loc"] else message
