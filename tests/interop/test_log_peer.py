"""Ours beside Kafka's UnifiedLog: one life, from a seed, and equal answers, states and files after each step."""

from __future__ import annotations

import pathlib
import random
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.log_pair import Pair, live
from tests.support.log_peer import KafkaPeer, OurLog

pytestmark = pytest.mark.interop

SEED, LIVES, TURNS = "14", 120, 60


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    peer = KafkaPeer(tmp_path_factory.mktemp("classes"))
    yield peer
    peer.end()


def test_a_log_lives_as_kafkas_does(theirs: KafkaPeer, tmp_path: pathlib.Path) -> None:
    """Appends, refusals, rolls, retention, truncation, tiering, clean stops, crashes, damage, each over its own files
    or the other's: where an answer or a file differs, replicas come apart, or a broker opens another log than we left.
    """
    seen: Counter[str] = Counter()
    for number in range(LIVES):
        pair = Pair(theirs, OurLog(), tmp_path)
        for kind, answer in live(pair, random.Random(f"{SEED}-{number}"), turns=TURNS):
            words = answer.split(" ")
            seen[" ".join([kind, *words[: 1 + (words[0] == "refused")]])] += 1
    assert all(seen[f"leader refused {error}"] for error in (2, 32, 45, 47, 48, 52, 87)), seen
    assert all(seen[kind] > 20 for kind in ("leader taken", "leader duplicate", "follower taken", "open open")), seen
    assert all(seen[kind] > 20 for kind in ("retention gone", "truncate done", "read refused 1", "list found")), seen
