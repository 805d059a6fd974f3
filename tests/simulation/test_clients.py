"""The simulation's clients over one broker and a network that loses, doubles and delays.

If they did not do as Kafka's clients do, the simulated cluster would be blamed for it, or what it does wrong would
never be met.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.simulation.clients import Clients
from tests.simulation.consumers import next_offset_behind
from tests.simulation.coordinator import Coordinator
from tests.simulation.messages import (
    AbortedTransaction,
    AdminAnswer,
    AskLeaders,
    DeletedRecords,
    DeleteRecords,
    Fetch,
    Fetched,
    Leaders,
    ListedOffset,
    ListOffset,
    MarkerWritten,
    Partition,
    Produce,
    Produced,
    TransactionAnswer,
    VerifyTransaction,
    WriteMarker,
)
from tests.simulation.settings import ClientCounts, Settings, TopicSettings
from tests.support.batches import Batch, encode
from tests.support.golden import ROW_COLUMNS
from tests.support.log_consumer import consume
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.local.log_config import LogConfig, LogDirectoryConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.log_errors import AppendRefusedError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import build_end_transaction_marker
from tierlog.records.control import ControlRecordType
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler

Answer = Callable[[Any], None]
_VALUE = ROW_COLUMNS.index("value")
PARTITIONS = tuple(Partition("orders", number) for number in range(2))


class FaultyNetwork:
    """Messages on their way, by the time at which they arrive."""

    def __init__(self, settings: Settings, scheduler: ManualScheduler, *, loss: float, doubles: float) -> None:
        self._rng = settings.rng("network")
        self._clock = scheduler.clock
        self._begun_ms = self.now_ms
        self._loss = loss
        self._doubles = doubles
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._nodes: dict[str, Callable[[str, Any, Answer], None]] = {}

    @property
    def now_ms(self) -> int:
        return self._clock.time_ms()

    def serve(self, name: str, handler: Callable[[str, Any, Answer], None]) -> int:
        self._nodes[name] = handler
        return 1

    def after(self, delay_ms: int, function: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), function))

    def call(
        self, source: str, target: str, request: object, then: Answer, *, timeout_ms: int, is_connection: bool = False
    ) -> None:
        is_over, was_delivered = False, False

        def end(answer: object) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                then(answer)

        def deliver() -> None:
            nonlocal was_delivered
            if not (is_connection and (is_over or was_delivered)):
                was_delivered = True
                self._nodes[target](source, request, lambda answer: self._send(lambda: end(answer)))

        self._send(deliver)
        self.after(timeout_ms, lambda: end(None))

    def _send(self, deliver: Callable[[], None]) -> None:
        copies = 1 + (self._rng.uniform(0, 1) < self._doubles)
        for _ in range(copies):
            if self._rng.uniform(0, 1) >= self._loss:
                late = self._rng.uniform(0, 1) < self._loss
                self.after(1 + self._rng.integer_below(4_000 if late else 20), deliver)

    def run(self, until: Callable[[], bool], limit_ms: int) -> None:
        """Let messages arrive until something is true."""
        while not until():
            due_ms, _, function = heapq.heappop(self._queue)
            assert due_ms - self._begun_ms < limit_ms, "it goes on for ever"
            self._clock.advance(max(0, due_ms - self.now_ms) / 1000)
            function()


class OneBroker:
    """A broker that leads everything, over real logs, and the controller that says so."""

    def __init__(self, settings: Settings, network: FaultyNetwork, directory: LogDirectory) -> None:
        self._settings = settings
        self._network = network
        self.logs = {
            each: directory.log(each.topic, each.number, topic_id=Uuid(b"simulatedclients")) for each in PARTITIONS
        }
        for log in self.logs.values():
            log.assign_epoch_start_offset(0, 0)
        network.serve("broker-1", self._handle)
        network.serve("controller", self._control)

    def _control(self, _: str, request: object, answer: Answer) -> None:
        if isinstance(request, AskLeaders):
            answer(Leaders(dict.fromkeys(PARTITIONS, (1, 0)), dict.fromkeys(PARTITIONS, (1,)), {}))
        else:
            answer(AdminAnswer(None))

    def _handle(self, _: str, request: Any, answer: Answer) -> None:
        log = self.logs[request.partition]
        match request:
            case Produce():
                self._produce(log, request, answer)
            case WriteMarker():
                answer(self._mark(log, request))
            case Fetch():
                answer(self._fetch(log, request))
            case ListOffset():
                offset = log.log_start_offset if request.timestamp == -2 else log.high_watermark
                answer(ListedOffset(None, offset, -1, 0))
            case DeleteRecords():
                answer(DeletedRecords(None, log.log_start_offset))

    def _produce(self, log: UnifiedLog, request: Produce, answer: Answer) -> None:
        number = int.from_bytes
        producer_id, epoch = number(request.batch[43:51], "big", signed=True), number(request.batch[51:53], "big")
        guard = None

        def append(verified: TransactionAnswer | None) -> None:
            if verified is None:
                return
            if verified.error is not None:
                is_fenced = verified.error == "PRODUCER_FENCED"
                answer(Produced("INVALID_PRODUCER_EPOCH" if is_fenced else verified.error))
                return
            try:
                info = log.append_as_leader(bytearray(request.batch), leader_epoch=0, verification_guard=guard)
            except AppendRefusedError as error:
                answer(Produced(error.error.name))
                return
            log.update_high_watermark(log.log_end_offset)
            answer(Produced(None, info.first_offset, log.log_start_offset))

        if request.transactional_id is None:
            append(TransactionAnswer(None))
            return
        try:
            guard = log.begin_transaction_verification(
                producer_id,
                sequence=number(request.batch[53:57], "big"),
                producer_epoch=epoch,
                supports_epoch_bump=self._settings.transaction_version == 2,
            )
        except AppendRefusedError as error:
            answer(Produced(error.error.name))
            return
        if guard is None:
            append(TransactionAnswer(None))
        else:
            verify = VerifyTransaction(request.transactional_id, producer_id, epoch, request.partition)
            self._network.call("broker-1", "coordinator", verify, append, timeout_ms=1_000)

    def _mark(self, log: UnifiedLog, request: WriteMarker) -> MarkerWritten:
        marker = build_end_transaction_marker(
            0,
            ControlRecordType.COMMIT if request.is_commit else ControlRecordType.ABORT,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            coordinator_epoch=request.coordinator_epoch,
            timestamp_ms=self._network.now_ms,
        )
        try:
            log.append_as_leader(
                bytearray(marker),
                leader_epoch=0,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=request.transaction_version,
            )
        except AppendRefusedError as error:
            return MarkerWritten(error.error.name)
        log.update_high_watermark(log.log_end_offset)
        return MarkerWritten(None)

    def _fetch(self, log: UnifiedLog, request: Fetch) -> Fetched:
        isolation = FetchIsolation.TXN_COMMITTED if request.is_committed else FetchIsolation.HIGH_WATERMARK
        try:
            found = log.read(request.offset, max_bytes=request.max_bytes, isolation=isolation)
        except OffsetOutOfRangeError:
            return Fetched("OFFSET_OUT_OF_RANGE")
        return Fetched(
            None,
            b"".join(bytes(part.read()) for part in found.records),
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            tuple(AbortedTransaction(*each) for each in found.aborted_transactions or ()),
            0,
        )


class Noted:
    """A judge that notes what it is told, by the method's name."""

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: self.calls.setdefault(name, []).append((given, named))


class Run:
    """Clients of a seed over one broker, until they have stopped."""

    def __init__(self, seed: int, counts: ClientCounts, *, version: int = 2, epoch: int = 0) -> None:
        topic = TopicSettings("orders", len(PARTITIONS), 1, ())
        self.settings = Settings.draw(seed).replace(
            topics=(topic,), clients=counts, transaction_version=version, first_producer_epoch=epoch
        )
        self.judge = Noted()
        self.counts: Counter[str] = Counter()

    @contextmanager
    def over(
        self, *, loss: float = 0.05, doubles: float = 0.1, sends_ms: int = 20_000, fails_over: bool = False
    ) -> Iterator[OneBroker]:
        """Let the clients send for a time, and end what they have begun."""
        machine, scheduler = ManualScheduler.machine(self.settings.seed)
        with scheduler:
            machine.files.make_directories("/logs")
            directory = LogDirectory.open(
                "/logs",
                machine=machine,
                config=LogConfig(segment_bytes=4_000),
                directory_config=LogDirectoryConfig(transaction_partition_verification_enable=True),
                runs_tasks=False,
            )
            network = FaultyNetwork(self.settings, scheduler, loss=loss, doubles=doubles)
            broker = OneBroker(self.settings, network, directory)
            judge: Any = self.judge
            coordinator = Coordinator(self.settings, network, judge, lambda name: self.counts.update((name,)))
            clients = Clients(self.settings, network, judge)
            clients.start()
            begun_ms = network.now_ms
            for at_ms in range(2_000, sends_ms, 2_000) if fails_over else ():
                coordinator.marker_delay_ms = 1_000
                network.after(at_ms, lambda: coordinator.fail_over(200))
            network.run(lambda: network.now_ms - begun_ms > sends_ms, limit_ms=sends_ms * 2)
            clients.stop_writing()
            network.run(lambda: clients.is_idle and coordinator.is_idle, limit_ms=sends_ms + 120_000)
            self.coordinator = coordinator
            yield broker
            directory.close()

    def told(self, name: str) -> list[tuple[Any, ...]]:
        """The positional arguments of all calls of a method."""
        return [given for given, _ in self.judge.calls.get(name, [])]

    def sent(self) -> dict[tuple[str, int], tuple[Partition, tuple[bytes, ...], dict[str, Any]]]:
        return {
            (name, number): (partition, tuple(value for _, value in records), named)
            for (name, number, partition, records), named in self.judge.calls["sent"]
        }


def values_of(log: UnifiedLog, isolation: str = "read_uncommitted") -> list[Any]:
    return [row[_VALUE] for row in consume(log, isolation=isolation)]


@pytest.mark.parametrize("seed", range(1, 7))
def test_an_idempotent_producer_writes_each_record_once_and_in_order(seed: int) -> None:
    """A batch that is sent again would be there twice, or behind one that was sent after it."""
    run = Run(seed, ClientCounts(idempotent_producers=2, consumers=1))
    with run.over() as broker:
        sent, acknowledged = run.sent(), {given[:2]: given[2] for given in run.told("acknowledged")}
        assert len(acknowledged) >= 50
        assert any(given[3] for given in run.told("acknowledged")), "none was sent again"
        for partition, log in broker.logs.items():
            found = values_of(log)
            assert len(found) == len(set(found)), "a record is there twice"
            for name in ("idempotent-0", "idempotent-1"):
                wanted = [
                    value
                    for (producer, number), (at, values, _) in sorted(sent.items())
                    if producer == name and at == partition and (producer, number) in acknowledged
                    for value in values
                ]
                assert [value for value in found if value in set(wanted)] == wanted, "acknowledged, and not in order"


@pytest.mark.parametrize(
    ("seed", "version", "fails_over"),
    [(1, 1, False), (2, 1, True), (3, 2, False), (4, 2, True), (5, 2, False)],
)
def test_transactions_are_whole(seed: int, version: int, fails_over: bool) -> None:
    """Zombies, late markers, also of coordinators that are none any more, and lost answers: read committed shows what
    was committed, and only that.
    """
    run = Run(
        seed, ClientCounts(idempotent_producers=0, transactional_producers=3, committed_consumers=1), version=version
    )
    with run.over(sends_ms=40_000, fails_over=fails_over) as broker:
        assert bool(run.counts["markers of an earlier coordinator"]) == fails_over
        decided = {name: is_commit for name, is_commit, _ in run.told("transaction_decided")}
        ended = {name: outcome for name, outcome, _ in run.told("transaction_ended")}
        assert len(decided) >= 20
        assert {"committed", "aborted", "unknown"} <= set(ended.values())
        for name, outcome in ended.items():
            if outcome != "unknown":
                assert decided.get(name, False) == (outcome == "committed"), f"transaction {name} ended otherwise"
        acknowledged = {given[:2] for given in run.told("acknowledged")}
        committed = {value for log in broker.logs.values() for value in values_of(log, "read_committed")}
        for key, (_, values, named) in run.sent().items():
            is_commit = decided.get(named["transaction"], False)
            assert not (committed & set(values)) or is_commit, f"{key}: a record of an aborted transaction"
            if is_commit and key in acknowledged:
                assert set(values) <= committed, f"{key}: a committed record is missing"


def test_a_transactional_id_outlives_its_epochs() -> None:
    """Behind the last epoch it goes on with another producer id."""
    run = Run(8, ClientCounts(idempotent_producers=0, transactional_producers=1), epoch=32_760)
    with run.over(loss=0, doubles=0):
        producers = {known.producer_id for known in run.coordinator._ids.values()}
        assert min(producers) > 1_000
        assert any(outcome == "committed" for _, outcome, _ in run.told("transaction_ended")[-5:])


def test_a_consumer_goes_on_where_it_was() -> None:
    """Each answer is of the offset behind the answer before, or the judge heard why not."""
    run = Run(9, ClientCounts(idempotent_producers=1, consumers=2, committed_consumers=1))
    with run.over():
        positions: dict[tuple[str, Partition], int] = {}
        moves = {
            (name, partition, before, offset) for name, partition, before, offset, _, _ in run.told("position_reset")
        }
        polls = run.judge.calls["polled"]
        assert len(polls) >= 200
        for (name, partition), named in polls:
            before = positions.get((name, partition), named["offset"])
            assert before == named["offset"] or (name, partition, before, named["offset"]) in moves
            positions[name, partition] = _next_offset(named["data"], named["offset"])


def _next_offset(data: bytes, offset: int) -> int:
    while data:
        end = 12 + int.from_bytes(data[8:12], "big")
        if end > len(data):
            break
        offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
        data = data[end:]
    return offset


@pytest.mark.parametrize("position", [16, 17, 30])
def test_what_has_rotted_is_not_taken(position: int) -> None:
    """Kafka's clients refuse a magic that they do not know, which no checksum covers, and a wrong checksum."""
    data = bytearray(encode(Batch(7, (b"a", b"b"))))
    assert next_offset_behind(bytes(data), 7) == 9
    data[position] ^= 1
    assert next_offset_behind(bytes(data), 7) is None
