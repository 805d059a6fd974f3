"""Which request goes next, how many are under way, what each is answered, and how they end."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from typing_extensions import Buffer

from tierlog.errors import CorruptObjectError, NoThreadError, StoreError, StoreUnavailableError
from tierlog.remote.storage import store_requests
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.storage.store_requests import Lane, ReadRequest, StoreRequests
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.cancelling import CancelledReadError
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.optional_reads import Cancel, OnAnswer
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.runtime.stores.wrappers.rate_limiter import LIMITED_REQUEST_BYTES, RateLimiter

DATA = bytes(range(256)) * 40_000


class Begun(PassingStore):
    """Begins reads, which are answered when the test says so."""

    is_local = False  # type: ignore[assignment]

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(LocalStore(str(folder)))
        self.under_way: list[tuple[str, int, int, OnAnswer]] = []
        self.cancelled: list[str] = []

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        entry = (key, start_position, end_position_exclusive, on_answer)
        self.under_way.append(entry)

        def cancel() -> None:
            if entry in self.under_way:
                self.under_way.remove(entry)
                self.cancelled.append(key)
                on_answer(CancelledReadError("cancelled"))

        return cancel

    def answer(self, number: int = 0, error: BaseException | None = None) -> str:
        key, start, end, on_answer = self.under_way.pop(number)
        on_answer(DATA[start:end] if error is None else error)
        return key


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Begun:
    return Begun(tmp_path)


def requests_over(store: Begun, limiter: RateLimiter | None = None, machine: Machine | None = None) -> StoreRequests:
    return StoreRequests(store, limiter, StorageMetrics(), machine or Machine())


def request(
    told: Callable[[memoryview | BaseException], None],
    key: str = "a",
    *,
    size: int = 100,
    lane: Lane = Lane.READERS,
    is_exact: bool = True,
    before: Callable[[ReadRequest], bool] | None = None,
) -> ReadRequest:
    return ReadRequest(key, 0, size, name=key, lane=lane, turn=key[0], on_answer=told, is_exact=is_exact, before=before)


def test_what_goes_before_what(store: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a manifest waits behind a thousand chunks, or one partition behind another's thousand."""
    monkeypatch.setattr(store_requests, "REQUESTS_MAX", 1)
    requests = requests_over(store)
    told: list[object] = []
    names = ["a0", "a1", "a2", "b1", "c1"]
    started = {name: request(told.append, name) for name in names}
    ahead = {name: request(told.append, name, lane=Lane.AHEAD) for name in ("d1", "d2")}
    for each in [*started.values(), *ahead.values()]:
        requests.start(each)
    requests.start(request(told.append, "m1", lane=Lane.DESCRIPTIONS))
    assert [entry[0] for entry in store.under_way] == ["a0", "m1"]
    requests.promote(ahead["d2"])
    order = []
    while store.under_way:
        order.append(store.answer())
    assert order == ["a0", "m1", "a1", "b1", "c1", "d2", "a2", "d1"]
    assert len(told) == 8
    requests.close()


def test_answers(store: Begun) -> None:
    """If this fails, a short answer passes for the end of an object, or an error of the store is swallowed."""
    requests = requests_over(store)
    told: list[memoryview | BaseException] = []
    for each in (
        request(told.append),
        request(told.append, size=len(DATA) + 5),
        request(told.append, size=len(DATA) + 5, is_exact=False),
        request(told.append),
    ):
        requests.start(each)
    for error in (None, None, None, StoreError("no")):
        store.answer(error=error)
    assert told[0] == DATA[:100]
    assert isinstance(told[1], CorruptObjectError)
    assert told[2] == DATA
    assert str(told[3]) == "no"
    assert requests.metrics.value("fetch_bytes_total") == 100 + 2 * len(DATA)
    requests.close()


def test_what_nobody_wants(store: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, what a reader left behind is downloaded and paid for, or takes the place of others for ever."""
    monkeypatch.setattr(store_requests, "REQUESTS_MAX", 1)
    requests = requests_over(store)
    told: dict[str, object] = {}
    sent, queued, dropped, last = (
        request(lambda answer, name=name: told.update({name: answer}), name, before=before)  # type: ignore[misc]
        for name, before in (("a1", None), ("a2", None), ("a3", lambda _: False), ("a4", None))
    )
    for each in (sent, queued, dropped, last):
        requests.start(each)
    requests.cancel(queued)
    requests.cancel(sent)
    requests.cancel(sent)
    assert store.cancelled == ["a1"]
    assert [entry[0] for entry in store.under_way] == ["a4"]
    store.answer()
    assert {name: type(answer) for name, answer in told.items()} == {
        "a1": CancelledReadError,
        "a2": CancelledReadError,
        "a4": memoryview,
    }
    requests.close()


def test_closing_tells_everybody(store: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a broker's shutdown leaves readers waiting."""
    monkeypatch.setattr(store_requests, "REQUESTS_MAX", 2)
    requests = requests_over(store)
    told: list[object] = []
    for number in range(5):
        requests.start(request(told.append, f"a{number}"))
    requests.close()
    requests.close()
    requests.start(request(told.append, "late"))
    assert [type(answer) for answer in told] == [StoreUnavailableError] * 6
    assert not store.under_way
    with pytest.raises(StoreUnavailableError, match="closed"):
        requests.read_here("a", 0, 1, "a")


@pytest.mark.parametrize("seed", range(6))
def test_the_limit_holds_and_cuts(tmp_path: pathlib.Path, seed: int) -> None:
    """If this fails, one large chunk goes over the download limit, or is put together wrongly."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        store = Begun(tmp_path)
        limiter = RateLimiter(1 << 20, machine=machine)
        requests = requests_over(store, limiter, machine)
        told: list[memoryview | BaseException] = []
        began = machine.clock.monotonic_seconds()
        sizes = (len(DATA), 1 << 20, 100)
        for number, size in enumerate(sizes):
            requests.start(request(told.append, f"{number}", size=size))
        asked = []
        while len(told) < len(sizes):
            machine.clock.sleep(0.05)
            while store.under_way:
                asked.append(store.under_way[0][2] - store.under_way[0][1])
                store.answer()
        assert sorted(bytes(found) for found in told if not isinstance(found, BaseException)) == sorted(
            DATA[:size] for size in sizes
        )
        assert max(asked) == LIMITED_REQUEST_BYTES
        passed = machine.clock.monotonic_seconds() - began
        assert passed >= (sum(sizes) - LIMITED_REQUEST_BYTES) / (1 << 20) - 1
        requests.close()


def test_without_a_thread_for_the_limit(store: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a thread that the system once refused ends all reads until the process is started again."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        requests = requests_over(store, RateLimiter(1 << 20, machine=machine), machine)
        told: list[memoryview | BaseException] = []

        def refused(_: Callable[[], None]) -> None:
            raise NoThreadError("no thread for tierlog-limit")

        with monkeypatch.context() as patch:
            patch.setattr(requests._granting, "call_soon", refused)
            requests.start(request(told.append, "a1"))
        assert [type(answer) for answer in told] == [NoThreadError]
        requests.start(request(told.append, "a2"))
        machine.clock.sleep(1.0)
        assert [store.answer() for _ in store.under_way[:]] == ["a2"]
        requests.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_store_that_only_blocks(tmp_path: pathlib.Path, seed: int) -> None:
    """If this fails, a store of a third party's is asked one thing at a time, or by more threads than were allowed."""
    machine, scheduler = ManualScheduler.machine(seed)

    class Blocking(PassingStore):
        is_local = False  # type: ignore[assignment]
        now = most = 0

        def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
            self.now += 1
            self.most = max(self.most, self.now)
            machine.clock.sleep(1.0)
            self.now -= 1
            return DATA[start_position:end_position_exclusive]

    with scheduler:
        store = Blocking(LocalStore(str(tmp_path)))
        requests = StoreRequests(store, None, StorageMetrics(), machine, blocking_threads=4)
        told: list[object] = []
        for number in range(20):
            requests.start(request(told.append, f"{number}"))
        machine.clock.sleep(30)
        assert (len(told), store.most) == (20, 4)
        assert all(answer == DATA[:100] for answer in told)
        requests.close()
