"""A live cluster behind two fronts, by seeds: transactions, groups of four clients that begin at the start, and what
dies or stands still meanwhile. The brokers of half of the seeds tier through the plugin onto an S3 server.

``TIERLOG_FRONT_SEEDS=60`` runs so many.
"""

from __future__ import annotations

import os
import pathlib
import random
import time
from collections.abc import Iterator

import pytest

from tests.support.broker_pair import BEGINS
from tests.support.fault_proxy import FaultProxy
from tests.support.front_campaign import CONSUMERS, PARTITIONS, Behind, Member, Tier, Writer, differences, write
from tests.support.front_cluster import LEVELS, Records, records_of
from tests.support.kafka_tools import KafkaTools, kafka_tools
from tests.support.metadata_cluster import delete_topic, needs_a_broker, tiered_broker
from tests.support.plugin_brokers import broker_keys, form_keys, s3_keys
from tests.support.servers import BUCKET, StoreServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

SEEDS = int(os.environ.get("TIERLOG_FRONT_SEEDS", "4"))
KINDS = ("local", "plugin")
STEPS = 5
#: A member of a group that was killed holds its partitions for the time of its session.
MEMBER_SECONDS = 90.0
#: A step has one; a front dies twice as often. A store on a disk does not stand still.
FAULTS = ("front", "front", "broker", "consumer", "leader", "stall", "store", "retain", "none")


@pytest.fixture(scope="module")
def behind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, data: pathlib.Path, s3: StoreServer
) -> Iterator[Behind]:
    needs_a_broker()
    folder = tmp_path_factory.mktemp("campaign")
    (folder / "tier").mkdir()
    with FaultProxy.before(s3) as proxy:
        if request.param == "local":
            tier = Tier("local", str(folder / "tier"), {}, lambda _: tiered_broker(folder / "tier"))
        else:
            keys = s3_keys(s3, f"{folder.name}/") | form_keys("zstd + AES", data, folder)
            stored = keys | {**s3.options, "store.endpoint": proxy.endpoint, "storage.s3.endpoint.url": proxy.endpoint}
            config = {f"rsm.config.{name}": value for name, value in stored.items()}
            tier = Tier("plugin", f"s3://{BUCKET}", config, lambda _: broker_keys(keys, ours=True), proxy)
        made = Behind(folder, tier)
        try:
            made.start()
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    with kafka_tools(tmp_path_factory.mktemp("tools")) as running:
        yield running


def strike(fault: str, behind: Behind, topic: str, members: list[Member], chance: random.Random) -> dict[str, Records]:
    """Do a fault; what it deleted, by level."""
    if fault == "front":
        front = chance.choice(behind.fronts)
        front.kill()
        time.sleep(chance.choice((0.0, chance.uniform(0, 5))))
        front.start()
    elif fault == "consumer":
        member = chance.choice(members)
        member.end()
        time.sleep(chance.uniform(0, 2))
        member.start()
    elif fault == "broker":
        behind.pair.kill(BEGINS)
        time.sleep(chance.uniform(0, 5))
        behind.pair.start(BEGINS)
    elif fault == "stall":
        with behind.pair.standing_still():
            time.sleep(chance.uniform(1, 6))
    elif fault == "store":
        with behind.store_stands():
            time.sleep(chance.uniform(1, 6))
    elif fault == "leader":
        behind.elect(topic)
    elif fault == "retain":
        return behind.retain(topic, chance)
    return {}


def make(behind: Behind, topic: str, chance: random.Random) -> bool:
    """Make the topic; of some seeds there was one of its name, with other records, most of them in the tier."""
    behind.make(topic)
    if chance.random() >= 1 / 3:
        return False
    write(behind.direct, topic, 1500, b"before ")
    wait_until(lambda: behind.local_start(topic) > 0)
    assert len(records_of(behind.bootstrap, topic, PARTITIONS)) == 1500
    delete_topic(behind.direct, topic)
    behind.make(topic)
    return True


@pytest.mark.parametrize("behind", KINDS, indirect=True)
@pytest.mark.parametrize("seed", range(SEEDS // len(KINDS)))
def test_each_record_whatever_dies(behind: Behind, tools: KafkaTools, tmp_path: pathlib.Path, seed: int) -> None:
    """If this fails, a death, a new leader or the moving border has a record lost, doubled or made up."""
    chance, topic = random.Random(f"{behind.tier.name}-{seed}"), f"seed-{seed}"
    told = ["made anew"] if make(behind, topic, chance) else []
    before = behind.bytes_from_tier()
    writers = [Writer(behind.bootstrap, topic, seed, is_transactional=each) for each in (True, False)]
    levels = [*LEVELS, *chance.choices(LEVELS, k=len(CONSUMERS) - len(LEVELS))]
    chance.shuffle(levels)
    members = [
        Member(client, behind.bootstrap, topic, level, tmp_path)
        for client, level in zip(CONSUMERS, levels, strict=True)
    ]
    faults = [each for each in FAULTS if each != "store" or behind.tier.proxy is not None]
    gone: dict[str, Records] = {level: {} for level in LEVELS}
    for writer in writers:
        writer.start()
    try:
        time.sleep(4)
        for member in members:
            member.start()
        for _ in range(STEPS):
            told.append(chance.choice(faults))
            for level, deleted in strike(told[-1], behind, topic, members, chance).items():
                gone[level] |= deleted
            time.sleep(chance.uniform(0.5, 4))
        wait_until(lambda: all(len(writer.committed) > 150 for writer in writers))  # they go on behind the last fault
        for writer in writers:
            writer.stop()
        wanted = settled(behind, topic, writers, gone, told)
        for level in LEVELS:
            found = records_of(behind.bootstrap, topic, PARTITIONS, isolation=level)
            assert differences(found, wanted[level]) == "", (told, level)
        for member in members:
            until = time.monotonic() + MEMBER_SECONDS
            while difference := differences(member.got(), wanted[member.isolation], gone[member.isolation]):
                assert time.monotonic() < until, (told, member.client, member.isolation, difference)
                time.sleep(0.5)
        check_lag(behind, tools, members)
        assert behind.bytes_from_tier() > before, told
        for member in members:
            member.end()
    finally:
        for writer in writers:
            writer.stop()
        for member in members:
            member.kill()


def settled(
    behind: Behind, topic: str, writers: list[Writer], gone: dict[str, Records], told: list[str]
) -> dict[str, Records]:
    """What the cluster has in the end, by level: all that was acknowledged and not deleted, once.

    A transaction is committed before its markers are there, which wait for their leaders.
    """
    until = time.monotonic() + MEMBER_SECONDS
    committed = set[tuple[int, str]]().union(*(writer.committed for writer in writers))
    while True:
        wanted = {level: records_of(behind.direct, topic, PARTITIONS, isolation=level) for level in LEVELS}
        there = {**gone["read_committed"], **wanted["read_committed"]}
        shown = [(partition, hashed) for (partition, _), hashed in there.items()]
        lost = committed - set(shown)
        if not lost or time.monotonic() > until:
            break
    written = {(partition, hashed) for (partition, _), hashed in wanted["read_uncommitted"].items()}
    assert not lost, (told, f"{len(lost)} acknowledged records are lost, {len(lost & written)} of them uncommitted")
    assert len(shown) == len(set(shown)), (told, "a record was written twice")
    return wanted


def check_lag(behind: Behind, tools: KafkaTools, members: list[Member]) -> None:
    """The cluster's own tool shows each group through a front as it does beside it."""
    for member in members:
        until = time.monotonic() + MEMBER_SECONDS
        while True:  # commits may still be under way
            shown = [
                tools.run("kafka-consumer-groups", "--bootstrap-server", at, "--describe", "--group", member.group)
                for at in (behind.direct, behind.bootstrap)
            ]
            assert [each.code for each in shown] == [0, 0], shown[1].text
            rows = [
                sorted(line.split() for line in each.out.decode().splitlines() if member.group in line)
                for each in shown
            ]
            if rows[0] == rows[1] and len(rows[0]) == PARTITIONS:
                break
            assert time.monotonic() < until, rows
