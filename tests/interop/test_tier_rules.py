"""What a log's epochs say of the segments of its tier, beside Kafka's RemoteLogManager over the same values."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.line_process import LineProcess, kafka_peer
from tests.support.tier_entries import an_entry
from tierlog.remote.manager.tiered_lineage import epochs_with_records, is_within

pytestmark = pytest.mark.interop

QUESTIONS = 20_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineProcess]:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    package = "org.apache.kafka.server.log.remote.storage"
    with kafka_peer(tmp_path_factory.mktemp("classes"), "TierRules", package) as peer:
        yield peer


def any_epochs(rng: random.Random, start: int) -> dict[int, int]:
    """A lineage; some epochs have no records."""
    found, epoch = {}, rng.randint(0, 2)
    for _ in range(rng.randint(1, 4)):
        found[epoch] = start
        epoch += rng.randint(1, 2)
        start += rng.choice([0, 1, 2, 3, 5])
    return found


def text(epochs: dict[int, int]) -> str:
    return ",".join(f"{epoch}:{start}" for epoch, start in epochs.items())


def test_the_same_segments_are_the_logs(kafka: LineProcess) -> None:
    """Else retention counts, or deletes, what is not the log's; or a dead branch is searched by time."""
    rng = random.Random(20_261_127)
    seen: Counter[bool] = Counter()
    for _ in range(QUESTIONS):
        log = any_epochs(rng, rng.choice([0, 0, 3]))
        own = any_epochs(rng, rng.randint(0, 4)) if rng.random() < 0.4 else clipped(rng, log)
        first = min(own.values())
        last = max(own.values()) + rng.randint(0, 4)
        end = max(log.values()) + rng.randint(0, 6)
        theirs = kafka.ask("within", text(own), first, last, text(dict(with_records(log))), end)
        entry = an_entry(first, last, own)
        ours = is_within(entry, epochs_with_records(log.items()), log_end_offset=end)
        assert theirs == str(ours).lower(), (own, first, last, log, end)
        seen[ours] += 1
    assert min(seen.values()) > QUESTIONS // 10


def clipped(rng: random.Random, log: dict[int, int]) -> dict[int, int]:
    """The epochs of a segment of the log, or of one that was cut off."""
    entries = list(log.items())
    low = rng.randrange(len(entries))
    high = rng.randint(low, len(entries) - 1)
    chosen = dict(entries[low : high + 1])
    epoch, start = entries[low]
    chosen[epoch] = max(0, start + rng.choice([-1, 0, 0, 1]))
    return {each: max(offset, chosen[epoch]) for each, offset in chosen.items()}


def with_records(log: dict[int, int]) -> list[tuple[int, int]]:
    return [(each.epoch, each.start_offset) for each in epochs_with_records(log.items())]


def test_the_same_epochs_have_records(kafka: LineProcess) -> None:
    rng = random.Random(3)
    for _ in range(500):
        log = any_epochs(rng, 0)
        assert kafka.ask("filtered", text(log)) == text(dict(with_records(log)))
