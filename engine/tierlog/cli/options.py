"""Arguments and options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

PATH_HELP = (
    "A bucket URL (s3://, gs://, az://, abfss://, file://), a local bucket folder, a broker's log directory, or one "
    "file."
)


class Output(enum.StrEnum):
    """--output"""

    TEXT = "text"
    JSON = "json"


class LayoutName(enum.StrEnum):
    """--layout"""

    AUTO = "auto"
    AIVEN = "aiven"
    KAFKA = "kafka"
    LOG_DIR = "log-dir"
    LOCAL_TIERED = "local-tiered"


class Isolation(enum.StrEnum):
    """--isolation"""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Format(enum.StrEnum):
    """--format of records"""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"
    PARQUET = "parquet"
    ARROW = "arrow"
    ARROW_FILE = "arrow-file"


class Encoding(enum.StrEnum):
    """--key-as, --value-as"""

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
    typer.Argument(metavar="TOPIC", help="One topic; all if left out. ID:TOPIC picks one of two of a name."),
]
TopicsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        help="Topics; all if left out. ^REGEX is every one whose name it matches, ID:TOPIC one of two of a name.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The RSM's keys: .properties as a broker has it (rsm.config.*), or JSON/TOML of the same keys; also bare "
        "keys alone. A pipe is read too, and - is stdin.",
    ),
]
LayoutOption = Annotated[LayoutName, typer.Option("--layout", help="How the objects are laid out; auto looks.")]
OutputOption = Annotated[Output, typer.Option("--output", help="Text for people, or one JSON object a line.")]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        metavar="N[,N…]",
        parser=_partition_numbers,
        callback=_flattened,
        help="Only these partitions; may be repeated.",
    ),
]
LogStartOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log-start",
        metavar="[P:]OFFSET",
        help="Log start offset (of partition P): what is below was deleted, which a bucket alone cannot know.",
    ),
]
FailOnDataLossOption = Annotated[
    bool,
    typer.Option(
        "--fail-on-data-loss/--no-fail-on-data-loss",
        help="Fail where offsets, segments or batches are missing or damaged, or else name them and go on.",
    ),
]
