"""The brokers behind a front go from one release to another, one by one, while clients work through it."""

from __future__ import annotations

import pathlib
import shutil
import threading
import time
from typing import Any

import pytest

from tests.support.checkout import ROOT
from tests.support.fronts import front_process
from tests.support.metadata_cluster import admin_of, needs_a_broker
from tests.support.raw_client import RawClient, request_class
from tests.support.secure_pair import NODES, PATIENCE_SECONDS, Pair, consume, make_certificate, make_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

SASL_HANDSHAKE, API_VERSIONS, SHARE_FETCH = 17, 18, 78


def apis_of(bootstrap: str) -> dict[int, tuple[int, int]]:
    """The versions of each API, by a connection of its own."""
    client = RawClient(bootstrap)
    try:
        answer = client.ask(request_class(API_VERSIONS, 3)(client_software_name="a-test", client_software_version="1"))
    finally:
        client.close()
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


class Writer:
    """An idempotent producer that goes on until it is stopped; what is acknowledged is counted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: list[Any] = []
        self.sent = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(self.sent).encode(), on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0.005)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def stop(self) -> int:
        """End it; how many records it has sent, all of them acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_SECONDS) == 0
        assert self._failed == []
        return self.sent


def test_brokers_are_upgraded_one_by_one(tmp_path: pathlib.Path) -> None:
    """A front that remembers a broker's versions would refuse what the new one can, or send it what it cannot."""
    needs_a_broker()
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the brokers' certificate")
    make_certificate(tmp_path)
    pair = Pair(tmp_path, "kafka-3.9")
    try:
        pair.start_all()
        tier = ROOT / "tests" / "data" / "main-plain" / "objects"
        with front_process(tier, tmp_path / "front", pair.plain) as front:
            topic = make_topic(front.bootstrap)
            before = apis_of(front.bootstrap)
            assert SHARE_FETCH not in before
            writer = Writer(front.bootstrap, topic)
            try:
                pair.jars = "kafka"
                for node in reversed(NODES):
                    time.sleep(2)
                    pair.running[node].close()
                    pair.start(node)
                    wait_until(lambda: len(admin_of(front.bootstrap).list_topics(timeout=30).brokers) == len(NODES))
                time.sleep(2)
            finally:
                sent = writer.stop()
            assert consume(front.bootstrap, topic, sent) == list(range(sent))
            after = apis_of(front.bootstrap)
            assert SHARE_FETCH in after
            straight = apis_of(pair.plain.split(",")[0])
            assert after.keys() == straight.keys()
            assert all(first == straight[key][0] or key == 17 for key, (first, _) in after.items()), (
                "all but SaslHandshake"
            )
    finally:
        pair.close()
