"""``tierlog bench``: how near reading comes to this machine's limits, without data and without other programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierlog.cli.exits import complain, one_line
from tierlog.cli.options import ConfigOption, LayoutName, LayoutOption, Output, OutputOption
from tierlog.cli.tiers import config_keys

if TYPE_CHECKING:
    from tierlog.measuring.measurement import Measurement

_HEADINGS = ("WHAT", "SPEED", "RECORDS/S", "OF ITS LIMIT", "SPREAD")


def bench(
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            metavar="PATH",
            help="A bucket, folder, log directory or .log file to measure too: at most 256 MiB of it.",
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="A topic of PATH; all if left out.")
    ] = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    output: OutputOption = Output.TEXT,
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare", metavar="FILE", help="Show the change since a run that was saved with --output json."
        ),
    ] = None,
    size: Annotated[
        int, typer.Option("--size", metavar="MIB", min=1, max=1024, help="Size of the data for each codec.")
    ] = 64,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=1, max=100, help="The most rounds of each measurement.")
    ] = 5,
) -> None:
    """Measure this machine's limits, and how near reading comes to them.

    Limits: a copy of memory, CRC-32C, each codec alone, and plain GETs of PATH. Compared with them: scan and decode on
    one core, and a scan of PATH on all cores. Results are checked, then each call is timed in turn with its limit; the
    median of the rounds counts. It takes less than half a minute; longer with a PATH in a slow store.

    JSON: one object, which --compare reads: {"machine", "measurements", "skipped"}.
    """
    from tierlog.measuring.limits import measure_all
    from tierlog.measuring.measurement import machine_facts, read_saved
    from tierlog.runtime.machine import Machine

    machine = Machine()
    saved = {} if compare is None else read_saved(str(compare), machine.files)
    skipped: list[str] = []
    facts = machine_facts(machine)
    if output is Output.TEXT:
        print(one_line(", ".join(f"{name}: {value}" for name, value in facts.items())))
    groups = measure_all(
        machine.clock,
        path,
        topic,
        config=config_keys(config),
        layout=layout,
        size_bytes=size << 20,
        rounds=rounds,
        skipped=skipped,
    )
    if output is Output.TEXT:
        _print_text(groups, saved)
    else:
        _print_json(facts, groups, skipped, saved)
    for line in skipped:
        complain(f"skipped: {line}")


def _print_json(
    facts: Mapping[str, Any],
    groups: Iterator[list[Measurement]],
    skipped: Sequence[str],
    saved: Mapping[str, float],
) -> None:
    from tierlog.measuring.measurement import change

    rows = []
    for each in (measurement for group in groups for measurement in group):
        row = each.to_json()
        if saved:
            changed = change(each, saved)
            row["change"] = None if changed is None else round(changed, 3)
        rows.append(row)
    print(json.dumps({"machine": facts, "measurements": rows, "skipped": list(skipped)}))


def _print_text(groups: Iterator[list[Measurement]], saved: Mapping[str, float]) -> None:
    headings = (*_HEADINGS, "CHANGE") if saved else _HEADINGS
    print(_line(headings))
    for group in groups:
        for each in group:
            print(_line(_cells(each, saved)), flush=True)


def _cells(each: Measurement, saved: Mapping[str, float]) -> tuple[str, ...]:
    from tierlog.measuring.measurement import change

    fields = each.to_json()
    cells = (
        each.name if each.limit is None else f"  {each.name}",
        _speed(each.bytes_per_second),
        f"{fields['recordsPerSecond'] / 1e6:.2f} M" if each.records else "",
        "" if each.ratio is None else f"{each.ratio:.2f}",
        f"{each.spread:.0%}",
    )
    if not saved:
        return cells
    changed = change(each, saved)
    return (*cells, "new" if changed is None else f"{changed:+.0%}")


def _speed(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.2f} GB/s" if bytes_per_second >= 1e9 else f"{bytes_per_second / 1e6:.0f} MB/s"


def _line(cells: Sequence[str]) -> str:
    widths = (26, 12, 10, 13, 7, 7)
    name, *rest = cells
    return "".join(
        [name.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(rest, widths[1:], strict=False))]
    ).rstrip()
