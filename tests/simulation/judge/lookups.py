"""Offsets by time: a leader's answer is the first record that is not older, as far as the judge knows the records.

Producers give all records of a batch the time at which they send it first.
"""

from __future__ import annotations

from tests.simulation.facts import Violation
from tests.simulation.judge.contents import Contents
from tests.simulation.messages import ListedOffset, ListOffset


def check_lookup(contents: Contents, request: ListOffset, answer: ListedOffset, start: int, where: str) -> None:
    """Judge an answer; nothing is judged where compaction or an unclean election may have taken records.

    Args:
        contents: Of the partition.
        request: For a time, or a special offset.
        answer: Without an error; offset -1: there is none.
        start: The highest log start that a leader had: in front of it records may be gone.
        where: Who was asked, for messages.
    """
    asked = request.timestamp
    if asked < 0 or answer.offset < 0 or contents.is_compacted or contents.cuts:
        return
    text = f"{where}: {contents.partition} from {asked} on is {answer.offset}, of {answer.timestamp}"
    if answer.timestamp < asked:
        raise Violation(1, "wrong lookup", f"{text}: it is older")
    found = contents.at.get(answer.offset)
    if found is not None and found.sent is not None and found.sent.sent_ms != answer.timestamp:
        raise Violation(1, "wrong lookup", f"{text}: the record there is of {found.sent.sent_ms}")
    for offset in range(start, answer.offset):
        known = contents.at.get(offset)
        if known is not None and known.sent is not None and known.sent.sent_ms >= asked:
            raise Violation(1, "wrong lookup", f"{text}: {offset} is of {known.sent.sent_ms}")
