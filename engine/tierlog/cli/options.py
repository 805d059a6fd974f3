"""Arguments and options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tierlog.cli.exits import one_line

PATH_HELP = (
    "A bucket URL (s3://, gs://, az://, abfss://, file://), a local bucket folder, a broker's log directory, or one "
    "file."
)


class Output(enum.StrEnum):
    """Values of --output."""

    TEXT = "text"
    JSON = "json"

    def show(self, fields: Mapping[str, object], text: str) -> None:
        """Print one thing: its fields as a JSON object, or its text, on one line."""
        print(json.dumps(fields, ensure_ascii=False) if self is Output.JSON else one_line(text))


class LayoutName(enum.StrEnum):
    """Values of --layout."""

    AUTO = "auto"
    AIVEN = "aiven"
    KAFKA = "kafka"
    LOG_DIR = "log-dir"
    LOCAL_TIERED = "local-tiered"


class Isolation(enum.StrEnum):
    """Values of --isolation."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Format(enum.StrEnum):
    """Values of --format of ``cat``."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"
    ARROW = "arrow"
    ARROW_FILE = "arrow-file"


class Encoding(enum.StrEnum):
    """Values of --key-as and --value-as."""

    BASE64 = "base64"
    UTF8 = "utf8"
    JSON = "json"


def _partition_numbers(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.isdecimal() and len(number) <= 10 for number in numbers):
        raise typer.BadParameter(f"{text!r} is no partition number, nor several of them parted by commas")
    return list(map(int, numbers))


def _flattened(given: list[list[int]] | None) -> list[int] | None:
    return None if given is None else [number for numbers in given for number in numbers]


PathArgument = Annotated[str, typer.Argument(metavar="PATH", help=PATH_HELP, show_default=False)]
TopicArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TOPIC", help="One topic; all if left out. ID:TOPIC picks one of two topics of the same name."
    ),
]
TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        help="Topics; all if left out. ^REGEX picks all that it matches, ID:TOPIC one of two of the same name.",
    ),
]
OnlyTopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC", help="Only these topics. ID:TOPIC picks one of two topics of the same name."),
]
BucketArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="A bucket URL or a bucket folder.", show_default=False)
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The storage manager's keys: a broker's .properties (rsm.config.*), or JSON/TOML of the same keys, with "
        "or without that prefix. FILE may be a pipe; - is stdin.",
    ),
]
LayoutOption = Annotated[LayoutName, typer.Option("--layout", help="How the objects are laid out; auto finds out.")]
OutputOption = Annotated[Output, typer.Option("--output", help="Text for people, or a JSON object on each line.")]
MetadataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata",
        metavar="SOURCE",
        help="What says which segments there are, in which state: a log directory with __remote_log_metadata-N, or one "
        "such folder (repeat it for several brokers), a snapshot, or HOST:PORT of a running Kafka.",
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="For a running Kafka: its client's properties (security.protocol …), as Kafka's own tools take them.",
    ),
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        metavar="N[,N…]",
        parser=_partition_numbers,
        callback=_flattened,
        help="Only these partitions; the option may be repeated.",
    ),
]
SparkOption = Annotated[
    str | None,
    typer.Option(
        "--spark",
        metavar="MASTER",
        help="Have the segments done by Spark's executors: local[N], yarn, k8s://…, spark://HOST:PORT, or sc://HOST of "
        "Spark Connect. --jobs is then the number of cores to keep busy, by default those of the session.",
    ),
]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="PATH",
        help="A file, or a folder for it, that remembers which segments are done: the same command with the same "
        "ledger goes on where it was interrupted.",
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Only say how many segments, requests (about) and bytes it would take."),
]
LogStartOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log-start",
        metavar="[P:]OFFSET",
        help="Log start offset (of partition P): records below were deleted, which a bucket alone cannot show.",
    ),
]
FailOnDataLossOption = Annotated[
    bool,
    typer.Option(
        "--fail-on-data-loss/--no-fail-on-data-loss",
        help="Fail if offsets, segments or batches are missing or damaged; else they are named and left out.",
    ),
]
NodeIdOption = Annotated[
    int | None, typer.Option("--node-id", metavar="N", help="With --for-cluster: the broker's node.id.")
]
DirectoryIdOption = Annotated[
    str | None,
    typer.Option(
        "--directory-id",
        metavar="ID",
        help="With --for-cluster: directory.id in the meta.properties of the log directory that is replaced.",
    ),
]
