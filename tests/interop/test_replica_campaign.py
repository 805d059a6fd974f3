"""A bucket that changes at random in a store that fails at random, while real clients follow it through a replica."""

from __future__ import annotations

import os
import pathlib
import random
import time
from collections.abc import Callable

import pytest

from tests.support.changing_bucket import SUFFIXES, TieredLog
from tests.support.following_clients import Place
from tests.support.replica_rig import Rig, rig_of
from tests.support.servers import StoreServer

pytestmark = [pytest.mark.slow, pytest.mark.server]

SECONDS = float(os.environ.get("TIERLOG_CAMPAIGN_SECONDS", "120"))
#: How often everybody has to have come to the end.
ROUND_SECONDS = 15.0
FAULTS = ("status", "truncate", "lost", "reset", "hold")


class Campaign:
    """What befalls a bucket, drawn from a seed; each trouble has an end.

    Args:
        rig: Whose bucket it is.
        seed: Of the draws.
    """

    def __init__(self, rig: Rig, seed: int) -> None:
        self._rig = rig
        self._rng = random.Random(seed)
        self._mending: dict[Place, Callable[[], None]] = {}
        self._changes: dict[Callable[[Place, TieredLog], None], int] = {
            self._append: 40,
            self._expire: 12,
            self._hand_over: 8,
            self._copy_again: 8,
            self._elect: 6,
            self._recreate: 2,
            self._delay: 6,
            self._damage: 8,
            self._break_store: 10,
        }
        self.done: dict[str, int] = {}

    def step(self) -> None:
        """One change, or the end of a trouble."""
        places = list(self._rig.bucket.logs)
        place = self._rng.choice(places)
        if place in self._mending:
            self._mending.pop(place)()
        else:
            (change,) = self._rng.choices(list(self._changes), list(self._changes.values()))
            change(place, self._rig.bucket.logs[place])
            self.done[change.__name__] = self.done.get(change.__name__, 0) + 1
        self._rig.bucket.publish()

    def mend(self) -> None:
        """End all troubles."""
        for place in list(self._mending):
            self._mending.pop(place)()
        assert self._rig.proxy is not None
        self._rig.proxy.clear()
        self._rig.bucket.publish()

    def _append(self, _: Place, log: TieredLog) -> None:
        log.append(self._rng.randint(1, 30))

    def _expire(self, _: Place, log: TieredLog) -> None:
        if len(log.segments) > 2:
            log.expire()

    def _hand_over(self, _: Place, log: TieredLog) -> None:
        log.hand_over(self._rng.randint(1, 20), dead_count=self._rng.choice((0, 5, 40)))

    def _copy_again(self, _: Place, log: TieredLog) -> None:
        log.copy_again(self._rng.randint(log.start_offset, log.end_offset - 1))

    def _elect(self, _: Place, log: TieredLog) -> None:
        cut = log.batch_start(self._rng.randint(max(log.start_offset, log.end_offset - 25), log.end_offset - 1))
        if cut > log.start_offset:
            log.elect_unclean(cut, self._rng.randint(1, 20))

    def _recreate(self, place: Place, log: TieredLog) -> None:
        topic = place[0]
        if any(each[0] == topic for each in self._mending):
            return
        epoch = max(each.epoch for at, each in self._rig.bucket.logs.items() if at[0] == topic) + 1
        self._rig.bucket.add(topic, self._rig.bucket.delete(topic), epoch=epoch)

    def _delay(self, place: Place, log: TieredLog) -> None:
        name = log.append(self._rng.randint(1, 20))
        kept = {path: path.read_bytes() for path in (log.bucket.path(name, suffix) for suffix in SUFFIXES)}
        log.remove(name)
        log.append(self._rng.randint(1, 20))

        def arrive() -> None:
            for path, data in kept.items():
                path.write_bytes(data)

        self._mending[place] = arrive

    def _damage(self, place: Place, log: TieredLog) -> None:
        name = log.append(self._rng.randint(1, 20))
        path = log.bucket.path(name, self._rng.choice(("log", "rsm-manifest")))
        whole = path.read_bytes()
        path.write_bytes(whole[: self._rng.randrange(len(whole))])

        def restore() -> None:
            path.write_bytes(whole)

        self._mending[place] = restore

    def _break_store(self, place: Place, log: TieredLog) -> None:
        proxy = self._rig.proxy
        assert proxy is not None
        kind = self._rng.choice(FAULTS)
        path = self._rng.choice(("", f"/{log.bucket.topic}-{log.bucket.topic_id}/", ".log", ".rsm-manifest"))
        times = self._rng.randint(1, 10)
        rule = proxy.add(kind, verb="GET", path=path, times=times, after_bytes=self._rng.randrange(500))
        if kind == "hold":
            self._mending[place] = rule.release


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_wrong_doubled_or_skipped(
    seed: int, tmp_path: pathlib.Path, data: pathlib.Path, s3: StoreServer
) -> None:
    """What no scenario thinks of would cost records, or leave a consumer standing."""
    with rig_of(tmp_path, data, ("librdkafka", "aiokafka", "java"), s3) as rig:
        campaign = Campaign(rig, seed)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            end = time.monotonic() + ROUND_SECONDS
            while time.monotonic() < end:
                campaign.step()
                time.sleep(0.1)  # so that clients and the bucket move beside each other
            campaign.mend()
            rig.reach_ends()
        print(f"seed {seed}: {campaign.done}")
