"""``tierlog bench``: how near reading comes to this machine's limits, without data and without other programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierlog._version import __version__
from tierlog.cli.exits import complain, guarded, one_line
from tierlog.cli.options import ConfigOption, LayoutName, LayoutOption, Output, OutputOption
from tierlog.cli.tiers import config_keys

if TYPE_CHECKING:
    from tierlog.cli.bench.measuring import Measurement
    from tierlog.runtime.machine import Machine
    from tierlog.runtime.machine.clock import Clock
    from tierlog.runtime.machine.files import Files

#: A group of measurements takes at most about this long; there are seven.
GROUP_SECONDS = 2.0
_HEADINGS = ("WHAT", "SPEED", "RECORDS/S", "OF ITS LIMIT", "SPREAD")
_CPUINFO = "/proc/cpuinfo"
_MIB = 1 << 20


def register(app: typer.Typer) -> None:
    app.command("bench")(guarded(bench))


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
    from tierlog.cli.bench.measuring import read_saved
    from tierlog.runtime.machine import Machine

    machine = Machine()
    saved = {} if compare is None else read_saved(str(compare), machine.files)
    skipped: list[str] = []
    facts = machine_facts(machine)
    if output is Output.TEXT:
        print(one_line(", ".join(f"{name}: {value}" for name, value in facts.items())))
    groups = _groups(machine.clock, path, topic, config, layout, size * _MIB, rounds, skipped)
    if output is Output.TEXT:
        _print_text(groups, saved)
    else:
        _print_json(facts, groups, skipped, saved)
    for line in skipped:
        complain(f"skipped: {line}")


def machine_facts(machine: Machine) -> dict[str, str | int]:
    """The facts that a speed depends on, without names of hosts or paths."""
    import pyarrow as pa

    from tierlog._native.checksums import crc32c_implementation
    from tierlog._native.codecs import library_version
    from tierlog.records import CODEC_NAMES

    return {
        "tierlog": __version__,
        "processor": _processor(machine.files),
        "cores": machine.scheduler.cores,
        "memoryMiB": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "crc32c": crc32c_implementation(),
        **{f"{name}Library": version for i, name in enumerate(CODEC_NAMES) if (version := library_version(i))},
        "arrowPool": pa.default_memory_pool().backend_name,
    }


def _processor(files: Files) -> str:
    """Name of the processor, if Linux tells it; else the architecture."""
    from tierlog.errors import StoreError

    start = bytearray(4096)
    try:
        with files.open_read(_CPUINFO) as file:
            count = file.read_into(start, position=0)
    except StoreError:
        return platform.machine()
    for line in bytes(start[:count]).decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _groups(
    clock: Clock,
    path: str | None,
    topic: str | None,
    config: Path | None,
    layout: str,
    size_bytes: int,
    rounds: int,
    skipped: list[str],
) -> Iterator[list[Measurement]]:
    """A limit and our calls, group by group as they are measured; PATH first, so that a wrong PATH fails soon."""
    from tierlog.cli.bench.memory import measure_memory
    from tierlog.cli.bench.store import measure_path
    from tierlog.remote.tier import open_tier
    from tierlog.runtime.stores.protocol.object_store import ObjectStore
    from tierlog.runtime.stores.wrappers.counting_store import CountingStore

    if path is not None:
        counting: list[CountingStore] = []

        def counted(store: ObjectStore) -> CountingStore:
            counting.append(CountingStore(store))
            return counting[-1]

        with open_tier(path, layout=layout, config=config_keys(config), wrap_store=counted) as tier:
            yield measure_path(clock, tier, counting[-1], topic, rounds=rounds, budget_seconds=3 * GROUP_SECONDS)
    yield from measure_memory(
        clock, size_bytes=size_bytes, rounds=rounds, budget_seconds=GROUP_SECONDS, skipped=skipped
    )


def _print_json(
    facts: Mapping[str, Any],
    groups: Iterator[list[Measurement]],
    skipped: Sequence[str],
    saved: Mapping[str, float],
) -> None:
    from tierlog.cli.bench.measuring import change

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
    from tierlog.cli.bench.measuring import change

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
