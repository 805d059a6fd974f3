"""What clients got of a bucket that changes, held to the model: nothing wrong, nothing twice, nothing left out.

A client may go back only where an unclean election has cut off what it had read, and only to where the log parted or to
the log's start (``auto.offset.reset``); it may pass over records only where retention has taken them. librdkafka passes
over more: told of an election, it drops what it has fetched and not handed out yet, and goes on where the log parted.
"""

from __future__ import annotations

from tests.support.changing_bucket import ChangingBucket, Said, TieredLog
from tests.support.following_clients import EPOCH_AWARE, Following, Place

#: How long records may still come that an election has cut off: until the bucket is listed and clients have asked.
_NEWS_SECONDS = 60.0
#: Clients that lose what they have fetched when an election has cut off a later part of it.
DROPS_FETCHED = ("librdkafka",)


def require_sound(client: Following, bucket: ChangingBucket, starts: dict[Place, int] | None = None) -> None:
    """Fails at the first record that the client should not have got, or not then."""
    for place in list(client.delivered):
        before: Said | None = None
        for number, each in enumerate(client.got(place)):
            said = Said.decode(each.value)
            where = f"{client.name}, {place}, delivery {number}: {said} behind {before}"
            log = bucket.by_id[said.topic_id, said.partition]
            assert (log.bucket.topic, said.partition, said.offset) == (*place, each.offset), where
            assert each.value == log.value(said.offset, said.epoch), where
            assert (said.offset, said.epoch) in log.ever, f"{where} is of a branch that never counted"
            if _is_dead(said, log):
                cut_at = max(at for offset, at in log.cuts if offset <= said.offset)
                assert each.at_seconds < cut_at + _NEWS_SECONDS, f"{where} was cut off long before"
            if before is None:
                assert said.offset in log.starts | {(starts or {}).get(place, 0)}, where
            elif said.topic_id != before.topic_id:
                ids = bucket.topic_ids[place[0]]
                assert ids.index(said.topic_id) > ids.index(before.topic_id), f"{where} is of a topic that is gone"
                assert said.offset in log.starts | {before.offset + 1}, where
            else:
                _require_step(before, said, log, where, drops_fetched=client.name in DROPS_FETCHED)
            before = said


def _require_step(before: Said, said: Said, log: TieredLog, where: str, *, drops_fetched: bool) -> None:
    if said.offset == before.offset + 1:
        assert said.epoch >= before.epoch, f"{where} is of an older branch"
    elif said.offset > before.offset:
        has_dropped = drops_fetched and said.epoch > before.epoch and said.offset in {cut for cut, _ in log.cuts}
        assert has_dropped or said.offset in log.starts, f"{where}: records were left out"
    else:
        assert _is_dead(before, log), f"{where}: records came twice"
        assert said.offset in log.starts | {offset for offset, _ in log.cuts}, f"{where}: it went back to nowhere"


def _is_dead(said: Said, log: TieredLog) -> bool:
    return log.live.get(said.offset) != said.epoch


def require_whole(client: Following, bucket: ChangingBucket) -> None:
    """Fails unless the client stands at the end of every log, and has what counts if it can know of elections."""
    for place, log in bucket.logs.items():
        got = client.got(place)
        assert got, f"{client.name} has nothing of {place}"
        assert got[-1].offset + 1 == log.end_offset, f"{client.name} is not at the end of {place}"
        if client.name in EPOCH_AWARE:
            latest = {each.offset: Said.decode(each.value) for each in got}
            for said in latest.values():
                if said.topic_id == log.bucket.topic_id and log.start_offset <= said.offset < log.end_offset:
                    assert not _is_dead(said, log), f"{client.name} was left with {said}"
