"""The KIP's scenarios of leader changes as buckets, and the records that a reader must see: scripts 1 to 5 and F.

Values are named as in the scripts; one that belongs to an abandoned branch is spelled with a leading ``dead-``.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from tests.support.batches import message
from tests.support.buckets import Bucket

#: (offset, value, leader epoch), by offset.
Records = list[tuple[int, str, int]]


def _messages(records: Records) -> list:  # type: ignore[type-arg]
    return [message(offset, value, epoch) for offset, value, epoch in records]


def script_1(root: pathlib.Path) -> Records:
    """New follower: a tier without a failover."""
    log = [(0, "m0", 0), (1, "m1", 0), (2, "m2", 0), (3, "m3", 1), (4, "m4", 1), (5, "m5", 2)]
    bucket = Bucket(root)
    bucket.segment("u1", _messages(log[:3]), lineage={0: 0})
    bucket.segment("u2", _messages(log[3:]), lineage={0: 0, 1: 3, 2: 5})
    return log


def script_2(root: pathlib.Path) -> Records:
    """Out-of-sync follower: the third segment begins inside of an epoch."""
    log = [*script_1(root), (6, "m6", 2), (7, "m7", 3), (8, "m8", 3)]
    Bucket(root).segment("u3", _messages(log[6:]), lineage={0: 0, 1: 3, 2: 5, 3: 7})
    return log


def script_3(root: pathlib.Path) -> Records:
    """Multiple hard failures: the tail of u1 was lost by the cluster."""
    bucket = Bucket(root)
    bucket.segment("u1", _messages([(0, "m0", 0), (1, "dead-m1", 0)]), lineage={0: 0})
    bucket.segment("u2", _messages([(1, "m3", 1)]), lineage={0: 0, 1: 1})
    return [(0, "m0", 0), (1, "m3", 1)]


def script_4(root: pathlib.Path) -> Records:
    """Unclean election with truncation: u1 is as long as u2, and dead from offset 1 on."""
    bucket = Bucket(root)
    bucket.segment("u1", _messages([(0, "m0", 0), (1, "dead-m1", 0), (2, "dead-m2", 0)]), lineage={0: 0})
    bucket.segment("u2", _messages([(0, "m0", 0), (1, "m4", 1)]), lineage={0: 0, 1: 1})
    return [(0, "m0", 0), (1, "m4", 1)]


def script_5(root: pathlib.Path) -> Records:
    """Divergence: epoch 1 was a dead end; m2 and m3 are in u1 alone (real Kafka loses them)."""
    bucket = Bucket(root)
    first = [(0, "m0", 0), (1, "m1", 0)]
    bucket.segment("u1", _messages([*first, (2, "m2", 0), (3, "m3", 0)]), lineage={0: 0})
    bucket.segment("u2", _messages([*first, (2, "dead-m4", 1), (3, "dead-m5", 1)]), lineage={0: 0, 1: 2})
    last = [(4, "m4", 0), (5, "m7", 2)]
    bucket.segment("u3", _messages(last), lineage={0: 0, 2: 5})
    return [*first, (2, "m2", 0), (3, "m3", 0), *last]


def script_f(root: pathlib.Path) -> Records:
    """Follower becomes leader: its segments have other borders, offset 4 is in two of them."""
    log = [(0, "m0", 0), (1, "m1", 0), (2, "m2", 0), (3, "m3", 1), (4, "m4", 1), (5, "m5", 1), (6, "m6", 2)]
    bucket = Bucket(root)
    bucket.segment("u1", _messages(log[:3]), lineage={0: 0})
    bucket.segment("u2", _messages(log[3:5]), lineage={0: 0, 1: 3})
    bucket.segment("u3", _messages(log[4:]), lineage={0: 0, 1: 3, 2: 6})
    return log


#: Builds the bucket of a script below a folder and returns what a reader must see of topic "orders", partition 0.
SCRIPTS: dict[str, Callable[[pathlib.Path], Records]] = {
    "1": script_1,
    "2": script_2,
    "3": script_3,
    "4": script_4,
    "5": script_5,
    "F": script_f,
}
