"""Kafka clients that were not written here follow a bucket through ``tierlog replica`` while it changes underneath.

Each scenario is a trouble of one partition, or of all: the other partitions go on meanwhile, no client ever gets a
wrong, doubled or skipped record, and once the trouble has ended all reach the end, with nothing restarted.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Mapping

import pytest

from tests.support.replica_rig import CROWD, TOPICS, TROUBLED, Rig, rig_of
from tests.support.segments import throwaway_keys
from tests.support.servers import StoreServer
from tierlog.remote.tier.chunks.key_ring import KeyRing


def new_segments(rig: Rig) -> None:
    for _ in range(3):
        rig.grow()
        rig.reach_ends()


def retention(rig: Rig) -> None:
    for _ in range(3):
        rig.grow()
    rig.reach_ends()
    rig.troubled.expire()
    rig.troubled.expire()
    rig.bucket.publish()
    rig.grow()  # the clients see this in the listing that lacks the others
    rig.reach_ends()
    with rig.late_clients(3) as late:
        rig.reach_ends(clients=late)
        for client in late:
            assert client.got(TROUBLED)[0].offset == rig.troubled.start_offset, client.name
        rig.grow()
        rig.reach_ends(clients=late)


def failover(rig: Rig) -> None:
    rig.grow()
    rig.reach_ends()
    log, parted = rig.troubled, rig.troubled.end_offset
    log.hand_over(dead_count=30)
    log.copy_again(parted - 3)
    rig.bucket.publish()
    rig.reach_ends()
    rig.others_go_on()


def unclean_election(rig: Rig) -> None:
    rig.grow()
    rig.reach_ends()
    log = rig.troubled
    log.elect_unclean(log.end_offset - 6, count=2)
    rig.bucket.publish()
    rig.reach_ends()
    rig.others_go_on()
    rig.grow()
    rig.reach_ends()


def recreated_topic(rig: Rig) -> None:
    rig.grow()
    rig.reach_ends()
    rig.bucket.add("orders", rig.bucket.delete("orders"))
    rig.bucket.publish()
    rig.reach_ends(is_made_anew=True)
    rig.grow()
    rig.reach_ends()


def late_copy(rig: Rig) -> None:
    rig.reach_ends()
    log, before = rig.troubled, rig.troubled.end_offset
    late = log.append()
    paths = [log.bucket.path(late, suffix) for suffix in ("log", "indexes", "rsm-manifest")]
    kept = [rig.bucket.rewrite(path, lambda data: data) for path in paths]
    log.remove(late)
    log.append()
    rig.bucket.publish()
    rig.others_go_on()
    rig.require_held_at(before)
    for path, data in zip(paths, kept, strict=True):
        path.write_bytes(data)
    rig.bucket.publish()
    rig.reach_ends()


def _damaged(suffix: str, change: Callable[[bytes], bytes]) -> Callable[[Rig], None]:
    def scenario(rig: Rig) -> None:
        rig.reach_ends()
        name = rig.troubled.append()
        path = rig.troubled.bucket.path(name, suffix)
        whole = rig.bucket.rewrite(path, change)
        rig.bucket.publish()
        rig.others_go_on()
        for client in rig.clients:
            assert (client.position(TROUBLED) or 0) < rig.troubled.end_offset, client.name
        path.write_bytes(whole)
        rig.bucket.publish()
        rig.reach_ends()

    return scenario


def wrong_key(rig: Rig) -> None:
    rig.reach_ends()
    log, before = rig.troubled, rig.troubled.end_offset
    right = throwaway_keys(rig.keys)
    public, private = ((rig.keys / "keys" / "k2" / f"{kind}.der").read_bytes() for kind in ("public", "private"))
    wrong = KeyRing({"k1": private}, public_keys={"k1": public}, active_key_id="k1")
    log.key_ring = right
    log.append()
    rig.bucket.publish()
    rig.reach_ends()
    before = log.end_offset
    log.key_ring = wrong
    name = log.append()
    rig.bucket.publish()
    rig.others_go_on()
    rig.require_held_at(before)
    log.segments.pop()
    log.remove(name)
    log.end_offset, log.key_ring = before, right
    log.append()
    rig.bucket.publish()
    rig.reach_ends()


def _failing(kind: str, **more: object) -> Callable[[Rig], None]:
    """The store fails where the partition in trouble lies."""

    def scenario(rig: Rig) -> None:
        assert rig.proxy is not None
        rig.reach_ends()
        before = rig.troubled.end_offset
        path = f"/{rig.troubled.bucket.topic}-{rig.troubled.bucket.topic_id}/0/"
        rule = rig.proxy.add(kind, verb="GET", path=path, times=None, **more)  # type: ignore[arg-type]
        rig.grow([TROUBLED])
        rig.others_go_on()
        assert rule.struck
        rig.require_held_at(before)
        rig.proxy.clear()
        rule.release()
        rig.reach_ends()

    return scenario


def _crowd_stalls(ending: str) -> Callable[[Rig], None]:
    def scenario(rig: Rig) -> None:
        assert rig.proxy is not None
        crowd = [place for place in rig.bucket.logs if place[0] in CROWD]
        path = f"/crowd-{rig.bucket.logs[crowd[0]].bucket.topic_id}/"
        rule = rig.proxy.add("hold", verb="GET", path=path, ending=ending, times=None)
        for _ in range(3):
            for place in crowd:
                rig.bucket.logs[place].append()
        rig.bucket.publish()
        rig.proxy.wait_for_strikes(rule, 10)
        rig.others_go_on()
        rig.proxy.clear()
        rule.release()
        rig.reach_ends()

    return scenario


def _ill(seconds: float, *faults: tuple[str, Mapping[str, object]]) -> Callable[[Rig], None]:
    """The whole store is ill for a while; listings, too."""

    def scenario(rig: Rig) -> None:
        assert rig.proxy is not None
        rig.reach_ends()
        rules = [rig.proxy.add(kind, times=None, **more) for kind, more in faults]  # type: ignore[arg-type]
        rig.grow()
        time.sleep(seconds)  # how long it is ill is what the scenario is about
        assert all(rule.struck for rule in rules)
        rig.proxy.clear()
        for rule in rules:
            rule.release()
        rig.reach_ends()

    return scenario


#: Those that run with every change of the code, one after another with one server.
BRIEF = ("recreated topic", "failover", "unclean election", "late copy", "log cut short", "wrong key")
BRIEF_FAULTS = ("a folder stalls", "a folder has 503s", "a folder is cut")
#: What befalls objects. librdkafka does not follow a topic that is made anew with a lower leader epoch than the old one
#: had (its issue 4898): this comes before the elections.
CHANGES: dict[str, Callable[[Rig], None]] = {
    "new segments": new_segments,
    "recreated topic": recreated_topic,
    "failover": failover,
    "unclean election": unclean_election,
    "late copy": late_copy,
    "log cut short": _damaged("log", lambda data: data[: len(data) // 2]),
    "empty log": _damaged("log", lambda _: b""),
    "garbage manifest": _damaged("rsm-manifest", lambda _: b"\0garbage"),
    "manifest of nothing": _damaged("rsm-manifest", lambda _: b"{}"),
    "wrong key": wrong_key,
    "retention": retention,
}
#: What befalls the store.
FAULTS: dict[str, Callable[[Rig], None]] = {
    "a folder stalls": _failing("hold"),
    "a folder has 503s": _failing("status", status=503),
    "a folder is cut": _failing("truncate", after_bytes=10),
    "a folder resets": _failing("lost"),
    "all stalls for a moment": _ill(3, ("hold", {})),
    "all has 503s for a moment": _ill(3, ("status", {"status": 503})),
}
LONG_FAULTS: dict[str, Callable[[Rig], None]] = {
    "all stalls for a minute": _ill(60, ("hold", {})),
    "all has 503s for a minute": _ill(60, ("status", {"status": 503})),
    "a crowd has no manifests": _crowd_stalls(".rsm-manifest"),
    "a crowd has no logs": _crowd_stalls(".log"),
    "a crowd has nothing": _crowd_stalls(""),
}


PYTHON = ("librdkafka", "aiokafka")
ALL = (*PYTHON, "java")


def test_clients_follow_a_folder_that_changes(tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Consumers would lose records, get them twice, or stand still for good."""
    with rig_of(tmp_path, data, PYTHON) as rig:
        for name in BRIEF:
            CHANGES[name](rig)


@pytest.mark.server
def test_clients_follow_a_store_that_fails(tmp_path: pathlib.Path, data: pathlib.Path, s3: StoreServer) -> None:
    """A bad moment of a store would cost records, or a restart."""
    with rig_of(tmp_path, data, PYTHON, s3) as rig:
        for name in BRIEF_FAULTS:
            FAULTS[name](rig)


@pytest.mark.interop
@pytest.mark.parametrize("name", [*CHANGES, *FAULTS])
def test_every_client_follows_a_store_that_changes(
    name: str, tmp_path: pathlib.Path, data: pathlib.Path, s3: StoreServer
) -> None:
    """What one client forgives, another one takes for lost or doubled records."""
    with rig_of(tmp_path, data, ALL, s3) as rig:
        (CHANGES | FAULTS)[name](rig)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("name", LONG_FAULTS)
def test_clients_wait_for_a_store_that_is_ill_for_long(
    name: str, tmp_path: pathlib.Path, data: pathlib.Path, s3: StoreServer
) -> None:
    """One bad minute of a store, or of one of its prefixes, would cost records, or a restart."""
    topics = TOPICS | CROWD if "crowd" in name else TOPICS
    with rig_of(tmp_path, data, ALL, s3, topics=topics) as rig:
        LONG_FAULTS[name](rig)
