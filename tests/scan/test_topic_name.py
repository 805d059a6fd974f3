"""Topics as users name them."""

from __future__ import annotations

import pytest

from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.scan.topic_name import TopicName

ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", (None, "orders")),
        (f"{ID}:orders", (ID, "orders")),
        (f"{ID}:", (None, f"{ID}:")),
        (f"{ID[1:]}:orders", (None, f"{ID[1:]}:orders")),
        (f"{ID}:a:b", (ID, "a:b")),
    ],
)
def test_an_id_in_front_is_told_from_a_name(text: str, expected: tuple[str | None, str]) -> None:
    """If this fails, a name is taken for another one, or a recreated topic cannot be told from the old one."""
    parsed = TopicName.parse(text)
    assert parsed == expected
    assert str(parsed) == text


def test_an_id_picks_one_of_two_topics() -> None:
    """If this fails, records of a topic that was deleted come with those of its successor."""
    old, new = (TopicIdPartition(Uuid.from_text(text), "orders", 3) for text in (ID, ID[:-1] + "g"))
    assert [TopicName.parse(f"{ID}:orders").accepts(each) for each in (old, new)] == [True, False]
    assert TopicName.parse("orders").accepts(new)
    assert not TopicName.parse("order").accepts(old)
