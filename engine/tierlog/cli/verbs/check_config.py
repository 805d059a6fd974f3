"""``tierlog check-config``: the keys of a configuration, the identity that the store sees, and a round trip."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tierlog.cli.exits import ExitCode, one_line
from tierlog.cli.options import Output, OutputOption
from tierlog.cli.tiers import config_keys


def check_config(
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A broker's .properties with rsm.config.*, or JSON/TOML of the same keys; - for stdin.",
            show_default=False,
        ),
    ],
    output: OutputOption = Output.TEXT,
) -> ExitCode:
    """Check the keys of FILE, then write, read, list and remove small objects in its store, below a key of its own.

    Prints one line (or JSON object) for each step; for a failed step also the reason and what to do. Shows the identity
    that the store sees, never a secret. Ends with 0 if all is well, with 2 if FILE itself is wrong, with 3 if the store
    refuses or fails.

    Each request ends within store.retry_timeout plus one store.timeout (120 s), even if the store never answers. After
    a step without an answer no other step is tried: only the objects are removed.
    """
    from tierlog.remote.config import read_storage_config
    from tierlog.remote.tier.chunks.key_ring import read_key_ring
    from tierlog.remote.tier.configured_store import open_backend, stack_store
    from tierlog.remote.tier.store_check import CheckResult, StoreCheck
    from tierlog.runtime.machine import Machine
    from tierlog.runtime.stores.wrappers.passing_store import MASK

    failed = 0
    machine = Machine()
    keys = read_storage_config(config_keys(config), machine=machine)
    keys.check_for_broker()

    def show(result: CheckResult) -> None:
        if keys.key_prefix_mask and keys.key_prefix:
            result = replace(result, told=result.told.replace(keys.key_prefix, MASK))
        if output is Output.JSON:
            fields = {"step": result.step, "passed": result.passed, "told": result.told}
            print(json.dumps(fields | ({"advice": result.advice} if result.advice else {}), ensure_ascii=False))
        else:
            print(one_line(f"{'ok    ' if result.passed else 'FAILED'} {result.step}: {result.told}"))
            if result.advice:
                print(f"       what to do: {one_line(result.advice)}")
        sys.stdout.flush()

    read_key_ring(keys, machine, writing=True)
    ids = ", ".join(keys.encryption_key_pairs)
    encryption = f"key pairs {ids}, {keys.encryption_key_pair_id} wraps" if keys.encryption_enabled else "off"
    show(CheckResult("configuration", passed=True, told=f"layout {keys.layout}, encryption {encryption}"))
    store = stack_store(open_backend(keys, machine=machine), keys, machine=machine)
    try:
        show(CheckResult("store", passed=True, told=f"{store.describe()}, keys begin with {keys.key_prefix!r}"))
        for result in StoreCheck(store, key_prefix=keys.key_prefix, part_bytes=keys.part_bytes, machine=machine):
            show(result)
            failed += not result.passed
    finally:
        store.close()
    if output is Output.TEXT:
        print("all is well" if not failed else f"{failed} steps failed")
    return ExitCode.DATA_ERROR if failed else ExitCode.DONE
