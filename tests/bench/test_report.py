"""The tables of bench/README.md: what they say of a run, and what they leave alone."""

from __future__ import annotations

import pytest

pytest.importorskip("bench.report", reason="the harness is of the checkout: this is an installed wheel")

from bench.report import README, replaced, section, verdict
from bench.side_by_side import Comparison

FACTS = {"processor": "P", "cores": 2, "versions": {"tierlog": "0", "isal": "absent"}}


def comparison(**changes: object) -> Comparison:
    fields = {
        "name": "decode[x]",
        "ours": [2.0, 1.0, 4.0],
        "against": {"memcpy": [1.0, 1.5, 2.0]},
        "bars": {"memcpy": 0.8},
        "size_bytes": 3_000_000_000,
    }
    return Comparison(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_ratio_is_of_the_medians_and_the_spread_of_single_rounds() -> None:
    """A ratio of best rounds, or of rounds that did not run together, would flatter one side."""
    made = comparison()
    assert made.ratio("memcpy") == 0.75
    assert made.spread("memcpy") == (0.5, 1.5)


def test_a_missed_bar_is_said() -> None:
    """A table that hides a missed bar is an advertisement."""
    text = section("decode", {"facts": FACTS, "comparisons": [comparison().to_json()]})
    row = next(line for line in text.splitlines() if "decode[x]" in line)
    assert row == "| `decode[x]` | 1.50 GB/s | memcpy | 2.00 GB/s | 0.75× | 0.50–1.50 | ≥ 0.8 | **missed** |"
    assert "processor: P" in text
    assert "isal" not in text
    assert "medians of 3 rounds" in text
    assert (verdict(0.8, 0.8), verdict(0.79, 0.8), verdict(5.0, None)) == ("met", "**missed**", "")


def test_only_the_suite_that_ran_is_made_anew() -> None:
    """A quick run of one suite must not wipe the numbers of the slow ones."""
    text = "a\n<!-- begin one -->\nold\n<!-- end one -->\nb\n<!-- begin two -->\nkept\n<!-- end two -->\n"
    once = replaced(text, "one", "new")
    assert once == text.replace("old", "new")
    assert replaced(once, "one", "new") == once
    with pytest.raises(ValueError, match="three"):
        replaced(text, "three", "new")


@pytest.mark.parametrize("suite", ["decode", "scan", "peers", "spark", "spark_socket", "s3", "deflate"])
def test_the_readme_has_a_place_for_every_suite(suite: str) -> None:
    """An hour of measuring that ends with "no markers" has to be done again."""
    assert replaced(README.read_text(), suite, "x")
