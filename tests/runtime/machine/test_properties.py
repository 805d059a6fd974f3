"""Java's properties text."""

from __future__ import annotations

import pytest

from tierlog.runtime.machine.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=b", [("a", "b")]),
        ("a : b \n!x\n#y\n\n c  d", [("a", "b"), ("c", "d")]),
        ("a\\ b\\=c=d\\\\", [("a b=c", "d\\")]),
        ("a=b\\\r\n   c", [("a", "bc")]),
        ("a=\\u00e9\\t\\q", [("a", "é\tq")]),
        ("a", [("a", "")]),
        ("=b", [("", "b")]),
        ("a=b\\", [("a", "b")]),
        ("url=http://x:1/?a=b", [("url", "http://x:1/?a=b")]),
    ],
)
def test_as_java_reads_them(text: str, pairs: list[tuple[str, str]]) -> None:
    """If this fails, a broker's file means something else here than on the broker."""
    assert [(key, value) for key, value in parse_properties(text)] == [(k, v.rstrip()) for k, v in pairs]


def test_a_malformed_escape() -> None:
    """If this fails, a broken file is read with other values in silence."""
    with pytest.raises(ValueError, match="escape"):
        list(parse_properties("a=\\u12"))
