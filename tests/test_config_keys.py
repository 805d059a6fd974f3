"""Keys of configurations as rows: names, types and limits, in text and in code."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from tierlog.config_keys import WrongValueError, check_values, key, names_of, nearest_name, read_values, rows
from tierlog.errors import ConfigError

Password = str


@dataclass(frozen=True)
class Table:
    """A row of each kind."""

    segment_ms: int = key(
        "Age.", default=7, minimum=1, minimum_in_code=0, other_names=("log.roll.ms", "log.roll.hours")
    )
    keep_ms: int = key("Age.", default=9, minimum=-1, other_names=("log.keep.minutes",), negative_means=-1)
    level: int = key("Level.", default=-1, minimum=1, maximum=9, also=-1, under="zip.")
    part: int | None = key("Bytes.", minimum=4, multiple_of=4)
    ratio: float = key("Part.", default=0.5, minimum=0, maximum=1)
    enabled: bool = key("Switch.", default=False, name="is.enabled", other_names=("log.enabled",))
    mode: str = key("Mode.", default="a", choices=("a", "b"))
    address: str | None = key("URL.", url=True)
    secret: Password | None = key("Secret.", not_empty=True)
    policy: frozenset[str] = key("Policies.", default=frozenset(), choices=("x", "y"))
    fields: tuple[str, ...] = key("Fields.", default=(), choices=("F", "G"))
    replicas: tuple[str, ...] = key("Replicas.", default=(), pattern=("[0-9]+:[0-9]+", "a pair expected"))
    #: No key.
    port: int = 0


def test_a_row_has_the_name_and_the_type_of_its_field() -> None:
    """Else whoever adds a key has to write it down twice, and once it differs."""
    found = rows(Table)
    assert [row.name for row in found.values()][:6] == [
        "segment.ms",
        "keep.ms",
        "zip.level",
        "part",
        "ratio",
        "is.enabled",
    ]
    assert "port" not in found
    assert [field for field, row in found.items() if row.is_secret] == ["secret"]
    assert {"log.roll.hours", "segment.ms", "is.enabled"} <= names_of(Table)
    assert nearest_name("segmnt.ms", names_of(Table)) == "segment.ms"


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"segment.ms": " +5 ", "log.roll.hours": "2"}, {"segment_ms": 5}),
        ({"log.roll.hours": "2"}, {"segment_ms": 7_200_000}),
        ({"log.keep.minutes": "-9"}, {"keep_ms": -1}),
        ({"zip.level": "-1", "part": "8", "ratio": ".25"}, {"level": -1, "part": 8, "ratio": 0.25}),
        ({"log.enabled": "true"}, {"enabled": True}),
        ({"is.enabled": "TRUE", "mode": "b"}, {"enabled": True, "mode": "b"}),
        ({"policy": "x, y", "fields": "F,,G,", "replicas": "1:2"}, None),
        ({"replicas": "*"}, {"replicas": ("*",)}),
        ({"address": "HTTPS://h/x", "secret": "s"}, {"address": "HTTPS://h/x", "secret": "s"}),
        ({"others": "1"}, {}),
    ],
)
def test_text_is_read(given: dict[str, str], values: dict[str, object] | None) -> None:
    """Else a file means another thing than it says."""
    wanted = {"policy": frozenset("xy"), "fields": ("F", "G"), "replicas": ("1:2",)} if values is None else values
    assert read_values(Table, given) == wanted
    check_values(Table(**read_values(Table, given)))


@pytest.mark.parametrize(
    ("given", "said", "kafkas"),
    [
        ({"segment.ms": "0"}, "segment.ms 0: at least 1 expected", "Value must be at least 1"),
        ({"log.roll.hours": "0"}, "log.roll.hours 0: at least 1 expected, and at most 2^31-1", "at least 1 expected"),
        ({"segment.ms": "5", "log.roll.ms": "x"}, "log.roll.ms 'x': a whole number expected", "Not a number"),
        ({"zip.level": "10"}, "zip.level 10: at most 9 expected", "Value must be no more than 9"),
        ({"zip.level": "0"}, "zip.level 0: at least 1 expected, or -1", "Value must be at least 1"),
        ({"part": "6"}, "part 6: Value must be a multiple of 4", "multiple of 4"),
        ({"ratio": "NaN"}, "ratio 'NaN': a number expected", ""),
        ({"is.enabled": "yes"}, "is.enabled 'yes': true or false expected", "either true or false"),
        ({"mode": "A"}, "mode 'A': one of a, b expected", "String must be one of: a, b"),
        ({"address": "ftp://h"}, "valid URL", "valid URL"),
        ({"secret": ""}, "non-empty", "non-empty"),
        ({"policy": "x,"}, "an element is empty", ""),
        ({"policy": "x,z"}, "policy 'z': one of x, y", "one of: x, y"),
        ({"replicas": "1:2,"}, "replicas '': a pair expected", ""),
    ],
)
def test_a_wrong_value_is_told_in_both_words(given: dict[str, str], said: str, kafkas: str) -> None:
    """Else an operator is not told which key of a hundred is wrong, and what it may be."""
    with pytest.raises(WrongValueError) as caught:
        read_values(Table, given)
    assert isinstance(caught.value, ConfigError)
    assert said in str(caught.value)
    assert kafkas in caught.value.kafkas
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_code_is_checked_as_text_is() -> None:
    """Else a caller's mistake shows far below, in other words."""
    check_values(Table(segment_ms=0, ratio=1))
    with pytest.raises(WrongValueError) as caught:
        check_values(Table(secret=("hidden",)))  # type: ignore[arg-type]
    assert "hidden" not in str(caught.value)
    for wrong in ({"segment_ms": "5"}, {"enabled": 1}, {"segment_ms": True}, {"fields": (1,)}, {"mode": None}):
        with pytest.raises(WrongValueError):
            check_values(Table(**wrong))  # type: ignore[arg-type]
