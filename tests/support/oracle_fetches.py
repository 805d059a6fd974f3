"""Random fetches of two servers that have one log: with sessions and without, and what of their answers may differ."""

from __future__ import annotations

import datetime
import hashlib
import random
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.api_calls import make_request
from tests.support.broker_servers import Client
from tests.support.oracle_requests import Answer, Ground, Partition, ask

FETCH: Final = 1
VERSIONS: Final = range(4, 19)
_HEADER_BYTES: Final = 61
#: Sessions at once: far fewer than Kafka's slots, of which it has some in each of eight caches.
_CONVERSATIONS_MAX: Final = 50
_UNKNOWN_ID: Final = uuid.UUID(int=77)


class Records(bytes):
    """Records of an answer; told by size and checksum."""

    def __repr__(self) -> str:
        return f"{len(self)} bytes {hashlib.sha256(self).hexdigest()[:8]}"


@dataclass
class Conversation:
    """A client of both servers, which goes on with its sessions of both."""

    version: int
    theirs_id: int = 0
    ours_id: int = 0
    epoch: int = 0
    left: int = 0


@dataclass
class FetchOracle:
    """Asks two servers the same fetches.

    Args:
        ground: What both have.
        kafka, ours: The servers; Kafka's node is 1, ours 0.
        seed: Of the requests.

    Attributes:
        different: What differed and should not.
        records_count: Answers of partitions that had records.
        sessions_count: Requests that went on with a session.
        errors: Names of errors that were told alike.
    """

    ground: Ground
    kafka: Client
    ours: Client
    seed: int
    different: list[str] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)
    records_count: int = 0
    sessions_count: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._conversations: list[Conversation] = []

    def warm(self) -> None:
        """Have our server cache all that it has. Shares of partitions that it has to wait for are dealt out before it
        knows what they need: it gives less than Kafka then, in another order.
        """
        for (name, number), known in self.ground.partitions.items():
            for offset in range(known.log_start_offset, known.end_offset, 2):
                partition = {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
                topics = [{"topic": name, "partitions": [partition]}]
                ask(
                    self.ours,
                    make_request(
                        FETCH,
                        4,
                        replica_id=-1,
                        max_wait=datetime.timedelta(0),
                        min_bytes=1,
                        max_bytes=1 << 20,
                        isolation_level=offset // 2 % 2,
                        topics=topics,
                    ),
                )

    def compare(self, count: int) -> None:
        """Ask ``count`` times."""
        for _ in range(count):
            draw = self._random.random()
            if draw < 0.4:
                self._ask(Conversation(self._random.choice(VERSIONS), epoch=-1))
            elif not self._conversations or (draw < 0.55 and len(self._conversations) < _CONVERSATIONS_MAX):
                opened = Conversation(self._random.choice(range(7, 19)), left=self._random.randint(1, 12))
                self._ask(opened)
                if opened.theirs_id:
                    self._conversations.append(opened)
            else:
                known = self._random.choice(self._conversations)
                self._go_on(known)
                if known.left <= 0:
                    self._conversations.remove(known)

    def _go_on(self, known: Conversation) -> None:
        self.sessions_count += 1
        draw = self._random.random()
        if draw < 0.04:  # an epoch that is not its turn, or an id that is nobody's
            other = Conversation(
                known.version, known.theirs_id, known.ours_id, known.epoch + self._random.choice([1, 5])
            )
            if self._random.random() < 0.4:
                other.theirs_id = other.ours_id = 1
            self._ask(other)
            return
        if draw < 0.08:  # a client of the other way to name topics
            version = self._random.choice(range(7, 13) if known.version >= 13 else range(13, 19))
            self._ask(Conversation(version, known.theirs_id, known.ours_id, known.epoch))
            return
        known.left -= 1
        if known.left == 0:
            known.epoch = -1  # which ends it
        self._ask(known)

    def _ask(self, who: Conversation) -> None:
        values = self._values(who)
        self.versions.add(who.version)
        theirs = ask(self.kafka, make_request(FETCH, who.version, **values, session_id=who.theirs_id))
        ours = ask(self.ours, make_request(FETCH, who.version, **values, session_id=who.ours_id))
        asked_in_session = bool(who.theirs_id)
        their_id, our_id = theirs.get("session_id", 0), ours.get("session_id", 0)
        same_sessions = bool(their_id) == bool(our_id)
        if who.epoch == 0:
            who.theirs_id, who.ours_id, who.epoch = their_id, our_id, 1
        elif asked_in_session and who.epoch > 0 and _name(theirs.get("error_code", "none")) == "none":
            same_sessions = same_sessions and their_id in (0, who.theirs_id) and our_id in (0, who.ours_id)
            who.epoch += 1
            if not their_id:
                who.left = 0
        left, right = self._plain(theirs, 1), self._plain(ours, 0)
        _forgive_cut_headers(left, right)
        if left != right or not same_sessions:
            who.left = 0  # what follows in the session differs, too
            self.different.append(
                f"{who}: {values}\n  {_first_difference(left, right)}\n  Kafka:   {left}\n  replica: {right}"
                f"\n  sessions: {their_id} {our_id}"
            )

    def _values(self, who: Conversation) -> dict[str, Any]:
        draw = self._random
        uses_ids = who.version >= 13
        names = self.ground.names()
        topics = []
        for _ in range(draw.choice([0, 1, 1, 2, 3]) if who.epoch > 0 else draw.choice([1, 1, 2, 3])):
            name = draw.choice([*names * 4, "not-there"])
            numbers = [number for topic, number in self.ground.partitions if topic == name] or [0]
            partitions = [
                self._partition(self.ground.partitions.get((name, number), Partition(0, 10, 1, (0, 0))), number)
                for number in draw.choices([*numbers * 5, 9, -1], k=draw.randint(1, 4))
            ]
            topics.append(self._named(name, uses_ids) | {"partitions": partitions})
        forgotten = []
        if who.epoch > 0 and draw.random() < 0.3:
            name, number = draw.choice(list(self.ground.partitions))
            forgotten.append(self._named(name, uses_ids) | {"partitions": [number, 9]})
        return {
            "replica_id": -1,
            "max_wait": datetime.timedelta(0),
            "min_bytes": draw.choice([0, 1, 1, 1000, -1]),
            "max_bytes": draw.choice([-1, 0, 1, 500, 3000, 20_000, 50 << 20, 2**31 - 1]),
            "isolation_level": draw.choice([0, 1]),
            "session_epoch": who.epoch,
            "topics": topics,
            "forgotten_topics_data": forgotten,
            "rack_id": draw.choice(["", "a"]),
        }

    def _named(self, name: str, uses_ids: bool) -> dict[str, Any]:
        return {"topic_id": self.ground.topic_ids.get(name, _UNKNOWN_ID)} if uses_ids else {"topic": name}

    def _partition(self, known: Partition, number: int) -> dict[str, int]:
        draw = self._random
        first, end = known.log_start_offset, known.end_offset
        epoch = known.leader_epoch
        fetched = draw.choice([-1] * 6 + [*range(epoch + 2)])
        return {
            "partition": number,
            "current_leader_epoch": draw.choice([-1] * 12 + [epoch] * 3 + [epoch - 1, epoch + 1]),
            "fetch_offset": draw.choice(
                [*(draw.randint(first, end) for _ in range(12)), first, end, end + 1, first - 1]
            ),
            "last_fetched_epoch": fetched,
            "log_start_offset": -1,
            "partition_max_bytes": draw.choice([-1, 0, 1, 100, 1000, 1000, 5000, 1 << 20, 1 << 20, 2**31 - 1]),
        }

    def _plain(self, answer: Answer, node_id: int) -> Answer:
        """An answer as values that can be compared, in its order."""
        topics = []
        for topic in answer["responses"]:
            partitions = []
            for one in topic["partitions"]:
                told = dict(one)
                told["error_code"] = _name(one["error_code"])
                self.errors.add(told["error_code"])
                records = bytes(one["records"] or b"")
                self.records_count += bool(records)
                told["records"] = Records(records)
                leader = told.get("current_leader")
                if leader is not None and leader["leader_id"] == node_id:
                    leader["leader_id"] = "this node"
                partitions.append(told)
            topics.append((topic.get("topic"), topic.get("topic_id"), partitions))
        nodes = [node["node_id"] == node_id for node in answer.get("node_endpoints", ())]
        error = _name(answer.get("error_code", "none"))
        self.errors.add(error)
        return {"error": error, "topics": topics, "nodes": nodes, "throttle": answer["throttle_time"]}


def _name(error: Any) -> str:
    return str(getattr(error, "name", error))


def _forgive_cut_headers(theirs: Answer, ours: Answer) -> None:
    """Kafka cuts an answer at any byte; a replica sends no part of a header that it has not read to its end: only then
    it knows whose branch the batch belongs to. Clients pass over both.
    """
    for (_, _, kafka), (_, _, replica) in zip(theirs["topics"], ours["topics"], strict=False):
        for one, other in zip(kafka, replica, strict=False):
            full, cut = one["records"], other["records"]
            if len(full) - _HEADER_BYTES < len(cut) < len(full) and full.startswith(cut) and _ends_whole(cut):
                one["records"] = cut


def _ends_whole(records: bytes) -> bool:
    """Whether records end behind a batch."""
    at = 0
    while at + 12 <= len(records):
        at += 12 + int.from_bytes(records[at + 8 : at + 12], "big")
    return at == len(records) > 0


def _first_difference(theirs: Any, ours: Any, where: str = "answer") -> str:
    """Where two answers differ first."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        return next(
            (_first_difference(theirs[key], ours[key], f"{where}.{key}") for key in theirs if theirs[key] != ours[key]),
            "",
        )
    if isinstance(theirs, list | tuple) and isinstance(ours, list | tuple) and len(theirs) == len(ours):
        pairs = enumerate(zip(theirs, ours, strict=True))
        return next((_first_difference(one, other, f"{where}[{n}]") for n, (one, other) in pairs if one != other), "")
    return f"{where}: Kafka {theirs}, replica {ours}"
