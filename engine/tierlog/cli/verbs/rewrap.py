"""``tierlog rewrap``: put the data keys of a bucket under another key pair."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierlog.cli.exits import ExitCode, complain
from tierlog.cli.options import (
    BucketArgument,
    CommandConfigOption,
    LedgerOption,
    MetadataOption,
    Output,
    OutputOption,
    SparkOption,
)
from tierlog.cli.tiers import check_command_config, command_keys, config_keys
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from tierlog.upkeep.rewrap_work import Rewrap

_WORKERS = 16


def rewrap(
    path: BucketArgument,
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Keys: old and new pairs in encryption.key.pairs, the new one in encryption.key.pair.id.",
            show_default=False,
        ),
    ],
    metadata: MetadataOption = None,
    command_config: CommandConfigOption = None,
    no_digests: Annotated[
        bool,
        typer.Option(
            "--no-digests",
            help="No segment was ever copied with manifest.digest.enabled, so that --metadata is not needed.",
        ),
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Write the manifests; without it, only report.")] = False,
    output: OutputOption = Output.TEXT,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, help=f"Manifests under way at once; by default {_WORKERS}."),
    ] = None,
    spark: SparkOption = None,
    ledger: LedgerOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="The same as without --apply, and say how many manifests, requests and bytes."),
    ] = False,
) -> ExitCode:
    """Put the data key of every encrypted segment under the active key pair. Only that text of each manifest changes.

    Logs and indexes are neither read nor written; a footer beside a segment is written for the new manifest. A manifest
    is replaced only if it has not changed since it was read, and is read back. The next run continues an interrupted
    one; manifests under the active pair are left alone. A manifest that cannot be read, or that no key of FILE opens,
    is named and left alone (3).

    A segment that was copied with manifest.digest.enabled has the digest of its manifest in the metadata topic: brokers
    would refuse another manifest for good. --apply therefore needs --metadata, which shows these segments (they are
    named and left alone, as are segments that it does not know), or --no-digests.

    Brokers cache manifests in memory: leave the old pair on their rings for fetch.manifest.cache.retention.ms after the
    last run, whose report must name the active pair alone.

    Ends with 3 at the first request that a store does not answer within store.retry_timeout plus one store.timeout (120
    s); requests that run beside it end within as much again.

    With --ledger, manifests that it has are not read again, and told again. A ledger is of one rotation.

    Without --apply it ends with 1 if there is anything to do. JSON: one object for each manifest,
    {"state","manifest","topic","partition","segmentId","from","to","error"}.
    """
    from tierlog.cli.spark_session import spark_executor, tell_estimate
    from tierlog.upkeep.key_rotation import rewrap as rewrap_manifests
    from tierlog.upkeep.rewrap_work import RewrapState

    check_command_config(metadata, command_config)
    if apply and dry_run:
        raise ConfigError("--apply writes, --dry-run does not: give one of them")
    if apply and bool(metadata) == no_digests:
        raise ConfigError("--apply wants one of --metadata DIR and --no-digests")
    tell = partial(tell_estimate, "rewrap", output=output, is_answer=False, is_told=dry_run or spark is not None)
    with spark_executor(spark, "rewrap", jobs) as executor:
        result = rewrap_manifests(
            path,
            config=config_keys(config) or {},
            metadata=metadata or None,
            metadata_client=command_keys(command_config),
            no_digests=no_digests,
            apply=apply,
            workers=jobs or _WORKERS,
            executor=executor,
            ledger=ledger,
            on_estimate=tell,
            on_manifest=lambda outcome: _say(outcome, output),
        )
    states = result.states
    if output is Output.TEXT:
        ids = ", ".join(f"{count} {key_id or 'not encrypted'}" for key_id, count in sorted(result.counts.items()))
        done, left, failed = (
            states[state] for state in (RewrapState.REWRAPPED, RewrapState.PENDING, RewrapState.FAILED)
        )
        print(f"{result.counts.total()} manifests ({ids or 'none'}): {done} rewrapped, {left} to do, {failed} failed")
    if states[RewrapState.FAILED]:
        return ExitCode.DATA_ERROR
    return ExitCode.FAULTS_FOUND if states[RewrapState.PENDING] else ExitCode.DONE


def _say(outcome: Rewrap, output: Output) -> None:
    if outcome.error is not None:
        complain(str(outcome.error))
    partition = outcome.key.topic_id_partition
    told = {
        "state": str(outcome.state),
        "manifest": outcome.name,
        "topic": partition.topic,
        "partition": partition.partition,
        "segmentId": None if outcome.key.segment_id is None else str(outcome.key.segment_id),
        "from": outcome.key_id,
        "to": outcome.active_key_id,
        "error": None if outcome.error is None else str(outcome.error),
    }
    output.show(told, f"{outcome.state}: {outcome.name}: {outcome.key_id or '?'} to {outcome.active_key_id}")
