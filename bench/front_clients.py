"""Clients of ``bench.front``, in a process of their own: groups, a producer with a consumer at the live end, a storm.

Run by ``bench.harness.started``: a line of JSON asks, one answers. Seconds are those of the monotonic clock.
"""

from __future__ import annotations

import resource
import select
import struct
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from bench.harness import serve
from tests.support.raw_client import RawClient, request_class

PATIENCE_SECONDS = 120.0
_METADATA, _METADATA_VERSION = 3, 12
_SLICE_SECONDS = 0.005
_VALUE_BYTES, _LIVE_VALUE_BYTES = 1000, 5000


def backfill(asked: Mapping[str, Any]) -> dict[str, float]:
    """A new group reads a topic from its start, up to a number of records; they are thrown away."""
    from confluent_kafka import Consumer

    keys = {"bootstrap.servers": asked["bootstrap"], "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    # By default it fetches nothing for a second once its queue is full, and a server that is faster would wait.
    queue = {"queued.max.messages.kbytes": 1 << 18, "fetch.queue.backoff.ms": 10}
    consumer = Consumer({**keys, "check.crcs": False, **queue})
    consumer.subscribe([asked["topic"]])
    left, began = int(asked["records"]), 0.0
    until = time.monotonic() + PATIENCE_SECONDS
    while left > 0:
        messages = consumer.consume(min(left, 10_000), 1.0)
        if messages and not began:
            began = time.monotonic()  # until then the group is made
        if time.monotonic() > until:
            raise TimeoutError(f"{left} records do not come")
        left -= sum(message.error() is None for message in messages)
    seconds = time.monotonic() - began
    consumer.close()
    return {"seconds": seconds}


def live(asked: Mapping[str, Any]) -> dict[str, float]:
    """Milliseconds from the call of ``produce`` until a consumer at the live end has the record: quantiles of all.

    ``rate_bytes`` a second for ``seconds``; ``acks=all``; one record each five milliseconds has its time in it.
    """
    from confluent_kafka import Consumer, Producer

    topic, bootstrap = asked["topic"], asked["bootstrap"]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "latest",
            "fetch.wait.max.ms": 500,
            "fetch.queue.backoff.ms": 1,
        }
    )
    found: list[float] = []
    stop = threading.Event()
    is_assigned = threading.Event()
    consumer.subscribe([topic], on_assign=lambda *_: is_assigned.set())

    def consume() -> None:
        while not stop.is_set():
            for message in consumer.consume(1000, 0.01 if is_assigned.is_set() else 0.1):
                value = None if message.error() else message.value()
                if value is not None and value[:1] == b"t":
                    found.append(time.monotonic() - struct.unpack_from(">d", value, 1)[0])

    thread = threading.Thread(target=consume)
    thread.start()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "batch.size": 1 << 20})
    if not is_assigned.wait(PATIENCE_SECONDS):
        raise TimeoutError("the group is not made")
    time.sleep(1.0)
    plain = bytes(_LIVE_VALUE_BYTES)
    each_slice = int(asked["rate_bytes"] * _SLICE_SECONDS / _LIVE_VALUE_BYTES)
    began = at = time.monotonic()
    sent = 0
    while at < began + asked["seconds"]:
        producer.produce(topic, b"t" + struct.pack(">d", time.monotonic()) + plain)
        sent += 1
        for _ in range(each_slice):
            producer.produce(topic, plain)
        producer.poll(0)
        at += _SLICE_SECONDS
        time.sleep(max(0.0, at - time.monotonic()))
    producer.flush(PATIENCE_SECONDS)
    until = time.monotonic() + PATIENCE_SECONDS
    while len(found) < sent and time.monotonic() < until:
        time.sleep(0.05)
    stop.set()
    thread.join()
    consumer.close()
    if len(found) < sent:
        raise TimeoutError(f"{sent - len(found)} of {sent} records do not come")
    found.sort()
    return {name: found[int(len(found) * share)] * 1000 for name, share in (("p50", 0.5), ("p99", 0.99))}


def produce(asked: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of a producer, ``acks=all``, for so many bytes."""
    from confluent_kafka import Producer

    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    keys = {"bootstrap.servers": asked["bootstrap"], "acks": "all", "linger.ms": 5, "batch.size": 1 << 20}
    producer = Producer({**keys, "queue.buffering.max.kbytes": 1 << 18})
    value, began = bytes(_VALUE_BYTES), time.monotonic()
    for _ in range(int(asked["size_bytes"]) // _VALUE_BYTES):
        while True:
            try:
                producer.produce(asked["topic"], value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(PATIENCE_SECONDS) or failed:
        raise RuntimeError(f"records were not acknowledged: {failed[:1]}")
    return {"seconds": time.monotonic() - began}


def storm(asked: Mapping[str, Any]) -> dict[str, float]:
    """All of many clients ask for the metadata of all topics at the same moment, again and again; each waits for its
    answer before it asks again.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    clients = [RawClient(asked["bootstrap"]) for _ in range(int(asked["clients"]))]
    request = request_class(_METADATA, _METADATA_VERSION)(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    seconds = []
    for _ in range(int(asked["storms"])):
        began = time.monotonic()
        waiting = {}
        for client in clients:
            client.send(client.frame(request))
            waiting[client.fileno()] = client
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        while waiting:
            for descriptor, _ in poll.poll(PATIENCE_SECONDS * 1000):
                waiting.pop(descriptor).receive()
                poll.unregister(descriptor)
        seconds.append(time.monotonic() - began)
        time.sleep(max(0.0, 1.0 - seconds[-1]))
    for client in clients:
        client.close()
    seconds.sort()
    return {"seconds": seconds[len(seconds) // 2]}


_CALLS: dict[str, Callable[[Mapping[str, Any]], dict[str, float]]] = {
    "backfill": backfill,
    "live": live,
    "produce": produce,
    "storm": storm,
}

if __name__ == "__main__":
    serve(lambda asked: _CALLS[asked["op"]](asked))
