"""The lines on stderr: their level, and their form."""

from __future__ import annotations

import datetime
import json
import logging
import pathlib
import sys

import pytest

from tests.support.command import run_process
from tests.support.replica_server import replica
from tierlog.cli.stderr import JsonFormatter


def test_a_record_is_one_line_of_json() -> None:
    """A collector of logs takes a record apart by its line breaks, and an object's name may hold some."""
    try:
        raise ValueError("why")
    except ValueError:
        fault = sys.exc_info()
    record = logging.LogRecord("tierlog.x", logging.WARNING, "", 0, "event=%s \n\x1b[2J", ("ä",), fault)
    record.created = 1_700_000_000.25
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line)
    assert "ValueError: why" in found.pop("trace")
    assert found == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "WARNING",
        "logger": "tierlog.x",
        "message": "event=ä \n\x1b[2J",
    }


@pytest.mark.parametrize("level", ["debug", "error"])
def test_levels_before_a_verb(level: str, tmp_path: pathlib.Path) -> None:
    """An option that comes before a verb must not hide the verb, nor print what nobody asked for."""
    done = run_process("--log-level", level, "--log-format=json", "ls", str(tmp_path / "absent"))
    assert done.code in (2, 3)
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert lines[-1]["level"] == "ERROR"
    assert datetime.datetime.fromisoformat(lines[-1]["time"]).tzinfo is not None
    least = logging.getLevelNamesMapping()[level.upper()]
    assert all(logging.getLevelNamesMapping()[line["level"]] >= least for line in lines)


def test_a_level_that_is_none_is_wrong_use() -> None:
    """A misspelled level would log less than was meant."""
    assert run_process("--log-level", "loud", "ls", ".").code == 2


@pytest.mark.server
def test_all_lines_of_a_server_are_json(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """One line that is none breaks the parsing of a whole container's log."""
    options = ["--log-format", "json", "--log-level", "info"]
    with replica(data / "main-plain" / "objects", tmp_path, before_verb=options) as server:
        pass
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    told = [line["message"].split(" host=")[0] for line in lines]
    assert {"event=started", "event=stopped"} <= set(told)
    assert any("is served on" in line["message"] and line["level"] == "INFO" for line in lines)
