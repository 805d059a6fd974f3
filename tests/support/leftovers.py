"""What ``tierlog orphans`` finds in a store, at once and whatever its age."""

from __future__ import annotations

from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.layouts.aiven import AivenLayout
from tierlog.remote.tier.layouts.kafka import KafkaLayout
from tierlog.remote.tier.layouts.listing import Layout, Scope
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.upkeep.orphan_search import Orphan, OrphanKind, OrphanSearch


def search_of(store: ObjectStore, layout: str) -> OrphanSearch:
    """By the bucket alone; the store stays the caller's."""
    made: Layout = KafkaLayout(store, Scope()) if layout == "kafka" else AivenLayout(store, Scope(), KeyRing({}))
    return OrphanSearch(Tier(store, made), older_than_ms=0)


def leftovers(store: ObjectStore, layout: str = "aiven") -> list[Orphan]:
    """Segments that are not whole; uploads are left out."""
    return [each for each in search_of(store, layout).run().orphans if each.kind is not OrphanKind.UPLOAD]


def seen_by_readers(orphan: Orphan) -> bool:
    """The description is there, and something else is not: a deletion that began with the wrong end, or a request that
    landed after it.
    """
    return orphan.kind is OrphanKind.BROKEN


def objects_of(orphan: Orphan) -> set[str]:
    """All keys that are there of it."""
    described = {orphan.description} if orphan.has_description and orphan.description else set()
    return set(orphan.keys) | described
