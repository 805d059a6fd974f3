"""The file ``start-from-tier`` of a partition's folder: a log that begins anew behind what only the tier has.

Such a beginning changes many files: segments, producer snapshots, the leader epochs, and the log start, which is in a
checkpoint of the log directory. One file decides it: while it says STARTING or CUTTING, loading finishes what it says,
whatever a kill left of the old log; before it is there, the old log stands. Afterwards it says what the directory's
checkpoint may not say yet (STARTED), or that the log lacks what the tier has (NEEDED).

Kafka has no such file, and its LogLoader passes over it: what a kill left between the file and its end is the old log,
or an empty one at the log start, which Kafka's follower builds again from the tier.

Source: Kafka TierStateMachine, UnifiedLog#truncateFullyAndStartAt, which leave between them a log without a lineage.
"""

from __future__ import annotations

import base64
import binascii
import enum
import json
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tierlog.arguments import require_buffer, require_int64
from tierlog.errors import CorruptIndexError, ObjectNotFoundError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot, parse_producer_snapshot
from tierlog.log.local.leader_epoch_cache import require_entries
from tierlog.log.local.log_folder import LogFolder
from tierlog.marks import mark
from tierlog.runtime.machine.files import Files

TIER_START_FILE: Final = "start-from-tier"

_VERSION: Final = 1
_SIZE_BYTES_MAX: Final = 1 << 30


class TierStartState(enum.Enum):
    """The states of a beginning, in order: CUTTING then NEEDED, STARTING then STARTED."""

    CUTTING = "cutting"
    """The log is being cut to ``offset``, below its first segment: loading makes an empty log that ends there."""
    NEEDED = "needed"
    """It was cut so: the log must be begun anew from the tier before it is appended to."""
    STARTING = "starting"
    """The log is being begun anew: loading makes it, empty, with this lineage and these producers."""
    STARTED = "started"
    """It was begun so, or its start rose: the log starts at ``log_start_offset``, whatever an older checkpoint says."""


@dataclass(frozen=True, slots=True)
class TierStart:
    """The content of the file.

    Attributes:
        offset: Where the log begins here, and ends.
        log_start_offset: Where the log begins in the tier.
        superseded_offset: Log start of the log of before: a checkpoint of it says this at the most.
        superseded_epoch: Latest leader epoch of the log of before; -1 = it had none. A later one is of a broker that
            ran over an unfinished beginning: the file is out of date then.
        epochs: The lineage of STARTING; else empty.
        producer_snapshot: Bytes of STARTING's producer snapshot, as the tier has them; else empty.
    """

    state: TierStartState
    offset: int
    log_start_offset: int
    superseded_offset: int
    superseded_epoch: int = -1
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producer_snapshot: bytes = b""

    @property
    def is_unfinished(self) -> bool:
        """Whether the log's files may still be those of the old log."""
        return self.state in (TierStartState.CUTTING, TierStartState.STARTING)

    def is_overtaken(self, latest_epoch: int) -> bool:
        """Whether a log whose latest epoch is this one was led or fed by another broker since."""
        own = self.epochs.latest
        return latest_epoch > max(self.superseded_epoch, -1 if own is None else own.epoch)

    def log_start_by(self, checkpoint: int, *, was_clean: bool) -> int:
        """Return the log start: the directory's checkpoint counts only if it must be of this log, as behind a clean
        stop, also of a broker that passed over the file.
        """
        is_of_this_log = was_clean or checkpoint > max(self.superseded_offset, self.log_start_offset)
        return checkpoint if is_of_this_log else self.log_start_offset

    def finished(self) -> TierStart:
        """Return the content for a log whose files have been replaced."""
        if self.state is TierStartState.CUTTING:
            mark("log: was cut below its first segment")
        state = TierStartState.NEEDED if self.state is TierStartState.CUTTING else TierStartState.STARTED
        return replace(self, state=state, epochs=LeaderEpochs(), producer_snapshot=b"")


def raised_start(known: TierStart | None, offset: int, *, latest_epoch: int) -> TierStart:
    """Return the content for a log whose start rises: on the disk before its lineage is cut, or a log that is killed
    would start in front of its lineage, and have to be built anew although it has all of its records.

    Args:
        known: The present content; None: there is no file.
        offset: The new log start.
        latest_epoch: Of the log.
    """
    if known is None:
        known = TierStart(TierStartState.STARTED, offset, offset, offset, latest_epoch)
    return replace(known, offset=max(known.offset, offset), log_start_offset=offset)


def empty_start(
    known: TierStart | None, offset: int, log_start_offset: int, *, before: int, latest_epoch: int
) -> TierStart:
    """Return the content for a log that is to begin anew without a lineage, and without producers: on the disk before
    anything of the old log goes, or a kill leaves an empty log that starts, in the tier, where the old one did.

    Args:
        known: The present content; None: there is no file.
        offset: Where the log begins here.
        log_start_offset: Where it begins in the tier.
        before: Log start of the log of before.
        latest_epoch: Of that.
    """
    superseded = max(before, 0 if known is None else known.superseded_offset)
    snapshot = encode_producer_snapshot(())
    return TierStart(
        TierStartState.STARTING, offset, log_start_offset, superseded, latest_epoch, producer_snapshot=snapshot
    )


class TierStartFile:
    """The file in one folder; a rename of the folder moves it. One thread at a time."""

    def __init__(self, files: Files, folder: LogFolder) -> None:
        self._files = files
        self._folder = folder

    @property
    def path(self) -> str:
        return f"{self._folder.path}/{TIER_START_FILE}"

    def read(self) -> TierStart | None:
        """Read the file; None: there is none.

        Raises:
            CorruptIndexError: it is malformed, and which log stands here cannot be told. StoreError.
        """
        try:
            data = self._files.read_whole(self.path, limit_bytes=_SIZE_BYTES_MAX)
        except ObjectNotFoundError:
            return None
        try:
            return _decode(data)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            text = f"no {TIER_START_FILE} of version {_VERSION}: {error!s:.200}"
            raise CorruptIndexError(text, fault="BAD_ENTRY", position=0).located(self.path) from None

    def write(self, start: TierStart) -> None:
        """Replace the file, durably. Raises StoreError."""
        self._files.write_whole(self.path, _encode(start))

    def settle(self, start: TierStart | None, log_start_offset: int, *, may_need_tier: bool) -> TierStart | None:
        """Return what the file says of a log that was loaded, written again where that has changed: NEEDED is over
        where the topic has left the tier meanwhile, or another broker has appended to the log. Raises StoreError.

        Args:
            start: The content; None: there is no file.
            log_start_offset: Where the log starts.
            may_need_tier: Whether it is tiered, and has no records here.
        """
        if start is None or (may_need_tier and start.state is TierStartState.NEEDED):
            return start
        offset = max(start.offset, log_start_offset)
        settled = replace(start, state=TierStartState.STARTED, offset=offset, log_start_offset=log_start_offset)
        if settled != start:
            self.write(settled)
        return settled

    def remove(self) -> None:
        """Remove the file, durably, if it is there: one that came back would raise the start of a log that was cut
        meanwhile. Raises StoreError.
        """
        self._files.remove(self.path)
        self._files.fsync_directory(self._folder.path)


def _encode(start: TierStart) -> bytes:
    fields = {
        "version": _VERSION,
        "state": start.state.value,
        "offset": start.offset,
        "log_start_offset": start.log_start_offset,
        "superseded_offset": start.superseded_offset,
        "superseded_epoch": start.superseded_epoch,
        "epochs": [list(entry) for entry in start.epochs],
        "producer_snapshot": base64.b64encode(start.producer_snapshot).decode("ascii"),
    }
    text = json.dumps(fields, separators=(",", ":"))
    return f"{text}\n{binascii.crc32(text.encode('ascii')):08x}\n".encode("ascii")


def _decode(data: bytes) -> TierStart:
    """Raises ValueError, TypeError, KeyError."""
    text, _, rest = data.decode("ascii").partition("\n")
    if rest != f"{binascii.crc32(text.encode('ascii')):08x}\n":
        raise ValueError("its checksum is another")
    fields: dict[str, Any] = json.loads(text)
    if fields["version"] != _VERSION:
        raise ValueError(f"version {fields['version']}")
    offsets = [fields[name] for name in ("offset", "log_start_offset", "superseded_offset")]
    if type(fields["superseded_epoch"]) is not int:
        raise ValueError(f"epoch {fields['superseded_epoch']!r}")
    if any(type(offset) is not int or not 0 <= offset < 2**63 for offset in offsets) or offsets[1] > offsets[0]:
        raise ValueError(f"a log that begins here at {offsets[0]}, and starts at {offsets[1]}, not at {offsets[2]}")
    return TierStart(
        TierStartState(fields["state"]),
        offsets[0],
        offsets[1],
        offsets[2],
        fields["superseded_epoch"],
        LeaderEpochs((epoch, start) for epoch, start in fields["epochs"]),
        base64.b64decode(fields["producer_snapshot"], validate=True),
    )


def require_tier_start(
    offset: object, *, log_start_offset: object, epochs: object, producer_snapshot: object
) -> TierStart:
    """Check the arguments of ``UnifiedLog.start_from_tier``. Raises TypeError, ValueError, CorruptIndexError."""
    require_buffer("producer_snapshot", producer_snapshot)
    at = require_int64("offset", offset, least=0)
    start = require_int64("log_start_offset", log_start_offset, least=0)
    lineage = LeaderEpochs(require_entries("epochs", epochs)).range(start, at)
    if start > at:
        raise ValueError(f"to begin at offset {at}, with a log from {start} on")
    if start < at and (lineage.earliest is None or lineage.earliest.start_offset > start):
        raise ValueError(f"no epoch is given for offset {start}, where the log starts")
    parse_producer_snapshot(producer_snapshot)  # type: ignore[arg-type]
    return TierStart(TierStartState.STARTING, at, start, 0, -1, lineage, bytes(producer_snapshot))  # type: ignore[call-overload]
