"""The object store of a simulated cluster: a node of the network, and the ObjectStore by which a broker asks it.

The node is durable and consistent, as S3 is, but for the faults that the nemesis sets: it refuses, it answers late or
not at all, it applies what its client gave up (after a segment's deletion, too), its listings are old, a body is short.
"""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import Buffer

from tests.simulation.cluster_messages import Outcome, StoreCall
from tests.simulation.facts import Judge
from tests.simulation.network import Answer, Network
from tests.simulation.trace import Trace
from tierlog.errors import ObjectConflictError, ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.runtime.machine.cancelling import CancelledReadError, ended_by_scopes, require_wanted
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.machine.scheduling import PendingFuture
from tierlog.runtime.stores.protocol import optional_reads
from tierlog.runtime.stores.protocol.object_store import (
    ABSENT,
    FolderListing,
    ObjectInfo,
    RequestCounts,
    StoredObject,
    UnfinishedUpload,
    Upload,
    UploadLimits,
    check_part_bytes,
    views_of,
)
from tierlog.runtime.stores.protocol.store_writer import PartedUpload, before_resending

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

NAME: Final = "store"
_LIMITS: Final = UploadLimits(part_bytes_min=1, part_bytes_max=1 << 30, parts_max=10_000, put_bytes_max=1 << 30)
#: Segments are small: only so are they stored in parts.
_SMALL_PART_BYTES: Final = 700
_TIMEOUT_MS: Final = 1_500
_TRIES: Final = 2
#: How old a stale listing is, at most, and how late a call that its client gave up is applied.
_STALE_MS: Final = 5_000
_LATE_MS: Final = (1_000, 40_000)
_WRITES: Final = ("put", "complete", "delete")
_VERBS: Final = {
    "put": "PUT",
    "begin_upload": "POST",
    "put_part": "PUT",
    "complete": "POST",
    "abort": "DELETE",
    "delete": "DELETE",
    "find": "HEAD",
    "fetch_range": "GET",
    "list": "LIST",
    "list_uploads": "LIST",
}
#: Of a read to an object's end.
_TO_THE_END: Final = 1 << 62


@dataclass(slots=True)
class StoreRates:
    """The faults of the store: probabilities of a call, and ms."""

    fail: float = 0.0
    lose_answer: float = 0.0
    slow_ms_max: float = 0.0
    late_cancel: float = 0.0
    stale_listing: float = 0.0
    short_body: float = 0.0


@dataclass(slots=True)
class _Object:
    data: bytes
    info: ObjectInfo


@dataclass(slots=True)
class _Upload:
    key: str
    begun_ms: int
    parts: dict[int, bytes] = field(default_factory=dict)


class StoreNode:
    """The store's node.

    Args:
        network: Serves it under ``NAME``.
        judge: Is told what is stored and deleted, when it happens.
        trace: Counts faults.
        rng: Chance.

    """

    def __init__(self, network: Network, judge: Judge, trace: Trace, rng: SeededRng) -> None:
        self._network = network
        self._judge = judge
        self._trace = trace
        self._rng = rng
        self._objects: dict[str, _Object] = {}
        self._uploads: dict[str, _Upload] = {}
        self._completed: dict[str, StoredObject] = {}
        self._numbers = itertools.count(1)
        self._late: list[StoreCall] = []
        #: Listings of before: (time of the change that ended it, keys with their infos).
        self._before: deque[tuple[int, dict[str, ObjectInfo]]] = deque()
        self._rates: dict[int | None, StoreRates] = {None: StoreRates()}
        network.serve(NAME, self._handle)

    # ---- for the world

    def set_faults(self, broker: int | None = None, **rates: float) -> None:
        """Set faults, of all brokers or of one alone; what is not given stays."""
        known = self._rates.get(broker, self._rates[None])
        changed = replace(known, **rates)
        if broker is None:
            self._rates = {None: changed}
        else:
            self._rates[broker] = changed

    def objects(self) -> Mapping[str, int]:
        """Objects as they are: key to size in bytes."""
        return {key: len(each.data) for key, each in self._objects.items()}

    def remove(self, index: int, suffix: str = ".log") -> str | None:
        """Let a lifecycle rule remove an object: its key; None: there is none of the kind."""
        keys = sorted(key for key in self._objects if key.endswith(suffix))
        if not keys:
            return None
        key = keys[index % len(keys)]
        self._remove(key, "lifecycle")
        return key

    # ---- calls

    def _happens(self, rate: float) -> bool:
        return rate > 0 and self._rng.uniform(0, 1) < rate

    def _of(self, call: StoreCall) -> StoreRates:
        return self._rates.get(call.broker, self._rates[None])

    def _handle(self, _: str, call: StoreCall, answer: Answer) -> None:
        rates = self._of(call)
        if self._happens(rates.fail):
            self._trace.count("store calls refused")
            answer(Outcome(raised=StoreUnavailableError(f"{call.key}: {call.verb}: the store is busy")))
            return
        if call.verb in _WRITES and self._happens(rates.late_cancel):
            self._trace.count("store calls applied late")
            low, high = _LATE_MS
            self._late.append(call)
            self._network.after(low + self._rng.integer_below(high - low), lambda: self._run_late(call))
            return
        delay_ms = self._rng.uniform(0, rates.slow_ms_max) if rates.slow_ms_max else 0.0
        if delay_ms:
            self._network.after(delay_ms, lambda: self._apply(call, answer))
        else:
            self._apply(call, answer)

    def _apply(self, call: StoreCall, answer: Answer) -> None:
        outcome = self._run(call)
        if self._happens(self._of(call).lose_answer):
            self._trace.count("store answers lost")
        else:
            answer(outcome)

    def _run_late(self, call: StoreCall) -> None:
        """Apply a call that was given up; one that was made again, and had an answer, is forgotten."""
        if any(each is call for each in self._late):
            self._run(call)

    def _run(self, call: StoreCall) -> Outcome:
        same = call.broker, call.life, call.verb, call.key
        self._late = [each for each in self._late if (each.broker, each.life, each.verb, each.key) != same]
        try:
            return Outcome(getattr(self, f"_{call.verb}")(call))
        except StoreError as error:
            return Outcome(raised=error)

    # ---- objects

    def _remember(self) -> None:
        """Remember the listing of before a change, for those that come stale."""
        now_ms = self._network.now_ms
        if any(rates.stale_listing for rates in self._rates.values()):
            self._before.append((now_ms, {key: each.info for key, each in self._objects.items()}))
        while self._before and self._before[0][0] < now_ms - _STALE_MS:
            self._before.popleft()

    def _store(self, call: StoreCall, data: bytes) -> StoredObject:
        self._remember()
        etag = f"{zlib.crc32(data):08x}-{next(self._numbers)}"
        info = ObjectInfo(call.key, len(data), self._network.now_ms, etag)
        self._objects[call.key] = _Object(data, info)
        self._judge.object_put(
            call.key, len(data), call.broker, call.life, self._network.now_ms, is_awaited=call.is_awaited
        )
        return StoredObject(len(data), etag)

    def _remove(self, key: str, by: str) -> None:
        if key in self._objects:
            self._remember()
            del self._objects[key]
        self._judge.object_deleted(key, by, self._network.now_ms)

    def _put(self, call: StoreCall) -> StoredObject:
        data, expected_etag = call.arguments
        found = self._objects.get(call.key)
        if expected_etag is not None:
            known = ABSENT if found is None else found.info.etag
            if known != expected_etag:
                raise ObjectConflictError(f"{call.key}: another object is there")
        return self._store(call, data)

    def _delete(self, call: StoreCall) -> None:
        for key in call.arguments:
            self._remove(key, f"broker-{call.broker}")

    def _find(self, call: StoreCall) -> ObjectInfo | None:
        found = self._objects.get(call.key)
        return None if found is None else found.info

    def _fetch_range(self, call: StoreCall) -> bytes:
        start, end = call.arguments
        found = self._objects.get(call.key)
        if found is None:
            raise ObjectNotFoundError(f"{call.key}: no such object")
        data = found.data[start:end]
        if data and self._happens(self._of(call).short_body):
            self._trace.count("store bodies cut short")
            return data[: self._rng.integer_below(len(data))]
        return data

    def _list(self, call: StoreCall) -> tuple[ObjectInfo, ...]:
        infos = {key: each.info for key, each in self._objects.items()}
        if self._before and self._happens(self._of(call).stale_listing):
            self._trace.count("store listings stale")
            _, infos = self._before[self._rng.integer_below(len(self._before))]
        return tuple(infos[key] for key in sorted(infos) if key.startswith(call.key))

    # ---- uploads

    def _begin_upload(self, call: StoreCall) -> str:
        upload_id = f"upload-{next(self._numbers)}"
        self._uploads[upload_id] = _Upload(call.key, self._network.now_ms)
        return upload_id

    def _upload_of(self, call: StoreCall) -> _Upload:
        found = self._uploads.get(call.arguments[0])
        if found is None:
            raise StoreError(f"{call.key}: no such upload")
        return found

    def _put_part(self, call: StoreCall) -> int:
        _, number, data = call.arguments
        self._upload_of(call).parts[number] = data
        return int(number)

    def _complete(self, call: StoreCall) -> StoredObject:
        upload_id, count = call.arguments
        if upload_id in self._completed:  # once more: its answer was lost
            return self._completed[upload_id]
        upload = self._upload_of(call)
        data = b"".join(upload.parts[number] for number in range(1, count + 1))
        del self._uploads[upload_id]
        self._completed[upload_id] = stored = self._store(call, data)
        return stored

    def _abort(self, call: StoreCall) -> None:
        self._uploads.pop(call.arguments[0], None)

    def _list_uploads(self, call: StoreCall) -> tuple[UnfinishedUpload, ...]:
        return tuple(
            UnfinishedUpload(each.key, upload_id, each.begun_ms)
            for upload_id, each in sorted(self._uploads.items())
            if each.key.startswith(call.key)
        )


class StoreClient:
    """The store, as one life of a broker asks it: each call waits in the task that makes it. Any number of tasks.

    Args:
        broker: The life.
    """

    is_local = False

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._counts = RequestCounts()
        has_small_parts = broker.settings.seed // 2 % 2
        self._limits = replace(_LIMITS, part_bytes_max=_SMALL_PART_BYTES) if has_small_parts else _LIMITS

    @property
    def upload_limits(self) -> UploadLimits:
        return self._limits

    @property
    def requests(self) -> Mapping[str, int]:
        return self._counts.snapshot()

    def describe(self) -> str:
        return "simulated://bucket"

    def close(self) -> None:
        """Nothing is held."""

    # ---- calls

    def send(self, verb: str, key: str, arguments: tuple[Any, ...], then: Answer) -> StoreCall:
        """Send a call, and return it; ``then`` is called between two turns: with None if no answer came in time."""
        self._counts.add(_VERBS[verb])
        broker = self._broker
        call = StoreCall(broker.broker_id, broker.life, verb, key, arguments)
        broker.world.network.call(broker.name, NAME, call, then, timeout_ms=_TIMEOUT_MS, may_double=False)
        return call

    def call(self, verb: str, key: str, *arguments: Any, running: list[Running] | None = None) -> Any:
        """Make a call, once more if no answer comes.

        Args:
            verb: Of _VERBS.
            key: Of the object.
            arguments: Plain values.
            running: Has the call while it is under way, to cancel it.

        Raises StoreError and its kinds: StoreUnavailableError: no answer came. CancelledReadError.
        """
        require_wanted()
        for at in range(_TRIES):
            if at:
                before_resending()
            outcome = self._try(verb, key, arguments, running)
            if outcome is None:
                continue
            if at and isinstance(outcome.raised, ObjectConflictError):
                break  # perhaps with the first copy of this very call
            if outcome.raised is not None:
                raise type(outcome.raised)(*outcome.raised.args)
            return outcome.value
        raise StoreUnavailableError(f"{key}: {verb}: the store does not answer")

    def _try(self, verb: str, key: str, arguments: tuple[Any, ...], running: list[Running] | None) -> Outcome | None:
        under_way = Running(self._broker.group.future())
        call = self.send(verb, key, arguments, under_way.end)
        if running is not None:
            running.append(under_way)
        try:
            with ended_by_scopes(under_way.cancel):
                return under_way.wait()
        finally:
            call.is_awaited = False
            if running is not None and under_way in running:
                running.remove(under_way)

    # ---- reads

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        yield from self.call("list", prefix)

    def list_folder(self, prefix: str = "") -> FolderListing:
        folders: set[str] = set()
        objects: list[ObjectInfo] = []
        for each in self.call("list", prefix):
            name, slash, _ = each.key[len(prefix) :].partition("/")
            if slash:
                folders.add(f"{prefix}{name}/")
            else:
                objects.append(each)
        return FolderListing(tuple(sorted(folders)), tuple(objects))

    def fetch(self, key: str) -> Buffer:
        found: Buffer = self.call("fetch_range", key, 0, _TO_THE_END)
        return found

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        found: Buffer = self.call("fetch_range", key, start_position, end_position_exclusive)
        return found

    def find(self, key: str) -> ObjectInfo | None:
        found: ObjectInfo | None = self.call("find", key)
        return found

    # ---- writes

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        stored: StoredObject = self.call("put", key, b"".join(views_of(data)), expected_etag)
        return stored

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        check_part_bytes(part_bytes, self._limits)
        return SimulatedUpload(self, key, part_bytes, self.call("begin_upload", key), self._broker)

    def delete(self, keys: Sequence[str]) -> None:
        if keys:
            self.call("delete", keys[0], *keys)

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        yield from self.call("list_uploads", prefix)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.call("abort", upload.key, upload.upload_id)


class Running:
    """A call under way, and the task that waits for its answer."""

    def __init__(self, answer: PendingFuture[Outcome | None]) -> None:
        self._answer = answer

    def end(self, outcome: Outcome | None) -> None:
        """End the wait, unless it has ended; from anywhere."""
        if not self._answer.done():
            self._answer.set_result(outcome)

    def cancel(self) -> None:
        """End the wait with CancelledReadError."""
        self.end(Outcome(raised=CancelledReadError("cancelled")))

    def wait(self) -> Outcome | None:
        """Wait for the answer."""
        return self._answer.result()


class StartingStoreClient(StoreClient):
    """A StoreClient that begins reads without waiting for them, too (OptionalReads)."""

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: optional_reads.OnAnswer
    ) -> optional_reads.Cancel:
        """Begin a read; a task of the broker hands its answer on."""
        is_over = False

        def end(answer: optional_reads.Answer) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._broker.io.put(lambda: on_answer(answer))

        def then(outcome: Outcome | None) -> None:
            if outcome is None:
                end(StoreUnavailableError(f"{key}: the store does not answer"))
            elif outcome.raised is not None:
                end(type(outcome.raised)(*outcome.raised.args))
            else:
                end(outcome.value)

        self.send("fetch_range", key, (start_position, end_position_exclusive), then)
        return lambda: end(CancelledReadError("cancelled"))


class SimulatedUpload(PartedUpload):
    """An upload to the store."""

    def __init__(self, store: StoreClient, key: str, part_bytes: int, upload_id: str, broker: Broker) -> None:
        super().__init__(key, part_bytes, place=f"{store.describe()}/{key}", lock=broker.group.lock())
        self._store = store
        self._upload_id = upload_id
        self._running: list[Running] = []

    def _send(self, number: int, views: list[memoryview]) -> object:
        arguments = self._upload_id, number, b"".join(views)
        return self._store.call("put_part", self.key, *arguments, running=self._running)

    def _finish(self, parts: list[Any]) -> StoredObject:
        arguments = self._upload_id, len(parts)
        stored: StoredObject = self._store.call("complete", self.key, *arguments, running=self._running)
        return stored

    def _drop(self) -> None:
        for each in list(self._running):
            each.cancel()
        self._store.call("abort", self.key, self._upload_id)
