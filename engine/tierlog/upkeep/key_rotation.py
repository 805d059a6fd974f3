"""Key rotation without rewriting data: the data key of each segment under the active pair, in its manifest.

Only the text of ``dataKey`` changes; chunks and indexes stay. The next run continues an interrupted one: manifests
under the active pair are left alone.

A segment's metadata may hold the SHA-256 of its manifest (``manifest.digest.enabled``): a new manifest of such a
segment would be refused by its brokers, for good, since no wrapping ever comes again. Only the metadata topic says
which segments these are; they are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tierlog.arguments import require_flag
from tierlog.errors import ConfigError, CorruptDataError, ObjectConflictError
from tierlog.opening import Config, Metadata, Path, TierLocation, config_keys, given_machine, open_path, read_metadata
from tierlog.remote.api import RemoteLogSegmentId
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.layouts.aiven import MANIFEST
from tierlog.remote.tier.objects.custom_metadata import decode_custom_metadata
from tierlog.remote.tier.objects.object_keys import FOOTER, LOG, ObjectKey
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.runtime.stores.reading.folder_listing import iter_by_folder
from tierlog.upkeep.job_ledger import ledgered
from tierlog.upkeep.object_groups import listed_key
from tierlog.upkeep.rewrap_work import (
    ManifestOutcome,
    Rewrap,
    RewrapState,
    RewrapWork,
    StoredManifest,
    open_rewrap,
    rotation_key_ring,
)
from tierlog.upkeep.segment_work import Executor, JobEstimate, ThreadExecutor, TierOrder, WorkOrder

#: Manifests under way at once.
WORKERS: Final = 16
#: Of a manifest: its etag, the manifest, the new one, the new one read back.
_REQUESTS_A_MANIFEST: Final = 4
#: Of a footer: it is read, and written.
_REQUESTS_A_FOOTER: Final = 2


class KeyRotation:
    """One run over the manifests of a bucket.

    Args:
        tier: The bucket; the caller closes it.
        key_ring: Has the private keys of old pairs, and both of the active one.
        metadata: Says which segments have a digest; segments that it does not know are left alone. None: no segment has
            one.
        apply: Whether to write; else the run only reports its intended changes.
        workers: Manifests under way at once.
        executor: Does the manifests; None for so many threads.
        order: Opens the bucket where the executor needs it elsewhere.

    Attributes:
        counts: After a run, the number of manifests by the id of the pair that they had before; "" for segments that
            are not encrypted.

    Raises:
        ConfigError: a layout without encryption, or no active pair.
    """

    def __init__(
        self,
        tier: Tier,
        key_ring: KeyRing,
        *,
        metadata: MetadataView | None,
        apply: bool,
        workers: int = 16,
        executor: Executor | None = None,
        order: WorkOrder[StoredManifest, ManifestOutcome] | None = None,
    ) -> None:
        if tier.layout != "aiven":
            raise ConfigError(f"{tier.describe()}: nothing is encrypted in this layout")
        if key_ring.active_key_id is None:
            raise ConfigError("no encryption.key.pair.id is configured: there is no pair to rewrap to")
        self._tier = tier
        self._metadata = metadata
        self._executor = executor or ThreadExecutor(tier.machine.scheduler, workers, name="tierlog-rewrap")
        self._work = RewrapWork(tier, key_ring, apply=apply, order=order)
        self._manifests: list[StoredManifest] | None = None
        self.counts: Counter[str] = Counter()

    @property
    def estimate(self) -> JobEstimate:
        """What the run will do, if all manifests are under another pair. Raises: as iterating."""
        listed = self._listed()
        requests = sum(_REQUESTS_A_MANIFEST + _REQUESTS_A_FOOTER * each.has_footer for each in listed)
        return JobEstimate(len(listed), requests, sum(each.size_bytes for each in listed))

    def __iter__(self) -> Iterator[Rewrap]:
        """Yield the manifests that are not under the active pair, by key.

        Raises:
            StoreError and its kinds: the store fails in a way that every manifest would meet.
        """
        self.counts.clear()
        listed, self._manifests = self._listed(), None
        arrived: dict[str, ManifestOutcome] = {}
        with closing(self._executor.run(self._work, map(self._judged, listed))) as done:
            for each in listed:
                while each.full_key not in arrived:
                    item, outcome = next(done)
                    arrived[item.full_key] = outcome
                found = arrived.pop(each.full_key)
                if found.key_id is not None:
                    self.counts[found.key_id] += 1
                if found.rewrap is not None:
                    yield found.rewrap

    def _listed(self) -> list[StoredManifest]:
        """Return all manifests, listed to the end before the first is changed: a listing must not meet its own
        changes.
        """
        if self._manifests is not None:
            return self._manifests
        manifests: list[tuple[ObjectInfo, ObjectKey]] = []
        logs: dict[str, ObjectInfo] = {}
        footers: set[str] = set()
        place = self._tier.scope.folder or self._tier.scope.key_prefix
        for info in iter_by_folder(self._tier.store, [place], self._tier.machine):
            key = listed_key(self._tier, info.key)
            if key is not None and key.suffix == MANIFEST:
                manifests.append((info, key))
            elif key is not None and key.suffix == FOOTER:
                footers.add(info.key[: -len(FOOTER)])
            elif key is not None and key.suffix == LOG:
                logs[info.key[: -len(LOG)]] = info
        self._manifests = []
        for info, key in sorted(manifests, key=lambda each: each[0].key):
            base = info.key[: -len(MANIFEST)]
            log = logs.get(base)
            log_bytes, modified_ms = (-1, -1) if log is None else (log.size_bytes, log.last_modified_ms)
            self._manifests.append(
                StoredManifest(info.key, key, info.size_bytes, log_bytes, modified_ms, base in footers)
            )
        return self._manifests

    def _judged(self, manifest: StoredManifest) -> StoredManifest:
        """Return the manifest, with the reason if its segment's metadata may hold a digest of it."""
        key = manifest.key
        if self._metadata is None or key.segment_id is None:
            return manifest
        name = self._tier.scope.name(manifest.full_key, self._tier.scope.key_prefix)
        known = self._metadata.find(RemoteLogSegmentId(key.topic_id_partition, key.segment_id))
        if known is None:
            text = "the metadata does not know the segment, which may have a digest"
            return replace(manifest, refusal=ObjectConflictError(f"{name}: {text}"))
        try:
            if decode_custom_metadata(known.custom_metadata, where=name).manifest_digest is None:
                return manifest
        except CorruptDataError as error:
            return replace(manifest, refusal=error)
        text = "its digest is in the metadata topic: copy the segment anew instead"
        return replace(manifest, refusal=ObjectConflictError(f"{name}: {text}"))


@dataclass(slots=True)
class RewrapResult:
    """The counts of a run.

    Attributes:
        active_key_id: The pair under which the data keys are put.
        counts: Manifests by the id of the pair that they had before; "" for segments that are not encrypted.
        states: Manifests that were not under the active pair, by their state.
    """

    active_key_id: str
    counts: Counter[str] = field(default_factory=Counter)
    states: Counter[RewrapState] = field(default_factory=Counter)


def rewrap(
    path: Path,
    *,
    config: Config,
    metadata: Metadata | None = None,
    metadata_client: Mapping[str, str] | None = None,
    no_digests: bool = False,
    apply: bool = False,
    workers: int = WORKERS,
    executor: Executor | None = None,
    ledger: Path | None = None,
    on_estimate: Callable[[JobEstimate], None] = lambda _: None,
    on_manifest: Callable[[Rewrap], None] = lambda _: None,
    machine: Machine | None = None,
) -> RewrapResult:
    """Put the data key of every encrypted segment under the active key pair. Only that text of each manifest changes.

    The next call continues an interrupted one: manifests under the active pair are left alone.

    Args:
        path: A bucket of the layout ``aiven``, or a folder in it.
        config: As for ``tierlog.read``: old and new pairs in ``encryption.key.pairs``, the new one in
            ``encryption.key.pair.id``.
        metadata: As for ``tierlog.read``; shows the segments whose manifest brokers know by a digest, which are left
            alone.
        metadata_client: As for ``tierlog.read``.
        no_digests: No segment was ever copied with ``manifest.digest.enabled``, so that metadata is not needed.
        apply: Write the manifests; else only say what would be done.
        workers: Manifests under way at once.
        executor: Does the manifests, as ``pyspark_tierlog.jobs`` has one; None for threads of this process.
        ledger: A file, or a folder for it, that remembers what is done: of manifests in it nothing is read. It is of
            one rotation; the next one needs another.
        on_estimate: Called once with what the job will do, before it does.
        on_manifest: Called with each manifest that is not under the active pair, by key.
        machine: The machine that the job runs on; this machine by default.

    Returns:
        The counts.

    Raises:
        TypeError: an argument is of another type; it is named. ConfigError: another layout, no encryption, a pair that
        cannot be read, or ``apply`` without one of ``metadata`` and ``no_digests``. StoreError and its kinds: the
        bucket cannot be listed, or fails in a way that every manifest would meet.
    """
    if require_flag("apply", apply) and (metadata is not None) == require_flag("no_digests", no_digests):
        raise ConfigError("to write, rewrap wants one of metadata and no_digests (--metadata DIR and --no-digests)")
    machine, keys = given_machine(machine), config_keys(config) or {}
    with ExitStack() as held:
        tier = held.enter_context(open_path(path, layout="aiven", config=keys, machine=machine))
        key_ring = rotation_key_ring(keys, tier)
        known = None
        if metadata is not None:
            known = held.enter_context(read_metadata(metadata, metadata_client, machine=machine))
        elif metadata_client:
            raise ConfigError("metadata_client says how the Kafka of metadata is reached, which is not given")
        result = RewrapResult(str(key_ring.active_key_id))
        threads = executor or ThreadExecutor(machine.scheduler, workers, name="tierlog-rewrap")
        asked = {"job": "rewrap", "path": tier.describe(), "to": result.active_key_id}
        by = held.enter_context(ledgered(threads, ledger, asked, machine))
        location = TierLocation(tier.url, tier.layout, dict(keys))
        order: TierOrder[StoredManifest, ManifestOutcome] = TierOrder(
            location, partial(open_rewrap, config=dict(keys), apply=apply)
        )
        run = KeyRotation(tier, key_ring, metadata=known, apply=apply, executor=by, order=order)
        on_estimate(run.estimate)
        for outcome in run:
            result.states[outcome.state] += 1
            on_manifest(outcome)
        result.counts = run.counts
    return result
