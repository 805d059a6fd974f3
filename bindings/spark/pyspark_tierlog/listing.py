"""The content of the bucket at ``load()``, pinned: every query over the DataFrame is planned from it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyspark_tierlog.options.source_options import ReadOptions
from pyspark_tierlog.request import scan_request, tier_config
from tierlog.errors import TierlogError
from tierlog.remote.tier import open_tier
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.plan import list_histories

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TierListing:
    """The history of each partition below one path, as it was when the path was listed.

    Attributes:
        path, layout: The path, and the layout that was found there.
        warnings: Damage that was left out because of ``failOnDataLoss=false``.
    """

    path: str
    layout: str
    histories: tuple[PartitionHistory, ...]
    warnings: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Size of the original logs."""
        return sum(history.size_bytes for history in self.histories)


@dataclass(frozen=True, slots=True)
class Listing:
    """The listings of all paths of a ``load()``, or the error of listing them, with which every query over the
    DataFrame fails.

    ``load()`` itself does not fail with it, since Spark would hide the error behind its own ("could not serialize
    object").
    """

    tiers: tuple[TierListing, ...] = ()
    failure: TierlogError | None = None

    def checked(self) -> tuple[TierListing, ...]:
        """Return the listing. Raises TierlogError: listing failed."""
        if self.failure is not None:
            raise self.failure
        return self.tiers


def list_tiers(options: ReadOptions, previous: Listing | None = None) -> Listing:
    """List the tiers that the options name, once. Never raises a TierlogError: a failure becomes part of
    the listing.

    Args:
        options: Of the load.
        previous: An earlier listing: what is in it need not be read again.
    """
    before = {} if previous is None else {tier.path: tier for tier in previous.tiers}
    try:
        return Listing(tuple(_list_tier(options, path, before.get(path)) for path in options.paths))
    except TierlogError as error:
        logger.info("tierlog: the listing failed: %s", error)
        return Listing(failure=error)


def _list_tier(options: ReadOptions, path: str, before: TierListing | None) -> TierListing:
    known = None
    if options.metadata is not None:
        from tierlog.remote.metadata.metadata_source import open_metadata

        client_keys = {name: value.get_secret_value() for name, value in options.metadata_client.items()}
        known = open_metadata(options.metadata, client_keys=client_keys)
    with open_tier(path, layout=options.layout, config=tier_config(options), known=known, list_once=True) as tier:
        # Tables of segments and transactions show what describes them, and those that do not count.
        pinned = options.table in ("records", "batches")
        previous = () if before is None else before.histories
        histories, warnings = list_histories(tier, scan_request(options), pinned=pinned, previous=previous)
        return TierListing(path, tier.layout, tuple(histories), tuple(warnings))
