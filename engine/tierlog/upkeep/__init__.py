"""Looking after tiers and logs without a broker: verify, export, copy between buckets, footers, orphans, restore, key
rotation.

``tierlog.upkeep.verify``, ``export``, ``copy``, ``index``, ``rewrap``, ``orphans``, ``restore`` and ``restore_copied``
are the jobs, each with the arguments of ``tierlog.read`` for its tier, a typed result, and no printing (docs/jobs.md).

What belongs here: jobs over whole partitions that change or judge stored segments. What does not: reading records for a
user (``tierlog.scan``), the storage manager that does each copy (``remote.storage``), printing (``cli``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names

if TYPE_CHECKING:
    from tierlog.log.checks.findings import Finding, Report, Severity
    from tierlog.upkeep.copying.bucket_copy import CopyResult, copy
    from tierlog.upkeep.copying.copy_work import CopiedObjects, CopyState, SegmentOutcome
    from tierlog.upkeep.exporting.broker_directory import TargetCluster
    from tierlog.upkeep.exporting.partition_export import ExportedPartition
    from tierlog.upkeep.exporting.topic_export import ExportResult, export
    from tierlog.upkeep.footer_backfill import IndexResult, index
    from tierlog.upkeep.footer_work import FooterOutcome, FooterState
    from tierlog.upkeep.key_rotation import RewrapResult, rewrap
    from tierlog.upkeep.orphan_search import Orphan, OrphanKind, OrphanReport, orphans
    from tierlog.upkeep.restoring.bucket_metadata import RestoredPartition, RestoredSegment
    from tierlog.upkeep.restoring.metadata_restore import (
        MovedTopic,
        RestorePlace,
        RestoreResult,
        restore,
        restore_copied,
    )
    from tierlog.upkeep.rewrap_work import Rewrap, RewrapState
    from tierlog.upkeep.segment_work import Executor, JobEstimate
    from tierlog.upkeep.verification.verification import VerifyResult, verify
else:
    _NAMES = {
        "tierlog.log.checks.findings": ("Finding", "Report", "Severity"),
        "tierlog.upkeep.copying.bucket_copy": ("CopyResult", "copy"),
        "tierlog.upkeep.copying.copy_work": ("CopiedObjects", "CopyState", "SegmentOutcome"),
        "tierlog.upkeep.exporting.broker_directory": ("TargetCluster",),
        "tierlog.upkeep.exporting.partition_export": ("ExportedPartition",),
        "tierlog.upkeep.exporting.topic_export": ("ExportResult", "export"),
        "tierlog.upkeep.footer_backfill": ("IndexResult", "index"),
        "tierlog.upkeep.footer_work": ("FooterOutcome", "FooterState"),
        "tierlog.upkeep.key_rotation": ("RewrapResult", "rewrap"),
        "tierlog.upkeep.orphan_search": ("Orphan", "OrphanKind", "OrphanReport", "orphans"),
        "tierlog.upkeep.restoring.bucket_metadata": ("RestoredPartition", "RestoredSegment"),
        "tierlog.upkeep.restoring.metadata_restore": (
            "MovedTopic",
            "RestorePlace",
            "RestoreResult",
            "restore",
            "restore_copied",
        ),
        "tierlog.upkeep.rewrap_work": ("Rewrap", "RewrapState"),
        "tierlog.upkeep.segment_work": ("Executor", "JobEstimate"),
        "tierlog.upkeep.verification.verification": ("VerifyResult", "verify"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)

__all__ = [
    "CopiedObjects",
    "CopyResult",
    "CopyState",
    "Executor",
    "ExportResult",
    "ExportedPartition",
    "Finding",
    "FooterOutcome",
    "FooterState",
    "IndexResult",
    "JobEstimate",
    "MovedTopic",
    "Orphan",
    "OrphanKind",
    "OrphanReport",
    "Report",
    "RestorePlace",
    "RestoreResult",
    "RestoredPartition",
    "RestoredSegment",
    "Rewrap",
    "RewrapResult",
    "RewrapState",
    "SegmentOutcome",
    "Severity",
    "TargetCluster",
    "VerifyResult",
    "copy",
    "export",
    "index",
    "orphans",
    "restore",
    "restore_copied",
    "rewrap",
    "verify",
]
