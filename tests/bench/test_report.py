"""How the benches compare and tell: ratios, bars, and the tables of bench/README.md."""

from __future__ import annotations

import pathlib

import pytest

pytest.importorskip("bench.report", reason="the harness is of the checkout: this is an installed wheel")

from bench.harness import Round, Suite, equal, in_turn, verdict
from bench.report import README, replaced, section

FACTS = {"processor": "P", "cores": 2, "versions": {"tierlog": "0", "isal": "absent"}}


def rounds(*walls: float) -> list[Round]:
    return [Round(wall, 0.0) for wall in walls]


def test_the_ratio_is_of_the_medians_and_the_spread_of_single_rounds() -> None:
    """A ratio of best rounds, or of rounds that did not run together, would flatter one side."""
    suite = Suite("one")
    found = {"ours": rounds(2.0, 1.0, 4.0), "memcpy": rounds(1.0, 1.5, 2.0)}
    suite.speed("decode", found, "memcpy", amount=3e9, bar=0.8)
    suite.seconds("job", found, "memcpy")
    assert [row["value"] for row in suite.rows] == [0.75, 0.75]
    assert suite.rows[0]["told"] == "1.50 (0.75–3.00) GB/s, memcpy 2.00 (1.50–3.00); rounds 0.50–1.50"
    assert suite.rows[1]["told"] == "2.00 (1.00–4.00) s, memcpy 1.50 (1.00–2.00) s; rounds 0.50–1.50"


def test_sides_take_turns_and_the_first_rounds_do_not_count() -> None:
    """A side that runs alone meets another machine than the others; a cold one is no measure."""
    calls: list[str] = []

    def told(side: str, seconds: float) -> dict[str, float]:
        calls.append(side)
        return {"wall": seconds, "cpu": 2 * seconds}

    found = in_turn({"peer": lambda: told("peer", 1.0), "ours": lambda: told("ours", 2.0)}, 2, warm=1)
    assert calls == ["peer", "ours"] * 3
    assert [(each.wall, each.cpu) for each in found["ours"]] == [(2.0, 4.0)] * 2


def test_sides_that_differ_end_the_run() -> None:
    """A fast wrong answer is no figure."""
    equal("sums", {"ours": [1, 2], "peer": [1, 2]})
    with pytest.raises(SystemExit, match="sums"):
        equal("sums", {"ours": [1, 2], "peer": [1, 3]})


def test_a_missed_bar_is_said(tmp_path: pathlib.Path) -> None:
    """A table that hides a missed bar is an advertisement."""
    suite = Suite("one")
    suite.add("decode, × memcpy", "1 GB/s", 0.75, 0.8)
    text = section({"facts": FACTS, "rows": suite.rows})
    assert "| decode, × memcpy | 1 GB/s | 0.75 | ≥ 0.8 | **missed** |" in text
    assert "processor: P" in text
    assert "isal" not in text
    verdicts = [
        verdict({"value": value, "bar": 0.8, "least": least}) for value in (0.796, 0.81) for least in (True, False)
    ]
    assert verdicts == ["met", "met", "met", "**missed**"]
    assert not verdict({"value": 1, "bar": None, "least": True})


def test_rows_of_parts_that_did_not_run_stay(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick run of one part must not wipe the figures of the slow ones."""
    monkeypatch.setenv("TIERLOG_BENCH_RESULTS", str(tmp_path))
    first, second = Suite("one"), Suite("one")
    first.add("slow", "", 1.0)
    first.add("quick", "", 2.0)
    first.save()
    second.add("quick", "", 3.0)
    second.save()
    text = (tmp_path / "one.json").read_text()
    assert '"slow"' in text
    assert "3.0" in text
    assert "2.0," not in text


def test_rows_of_the_table_that_were_not_measured_stay() -> None:
    """On a machine that has no results yet one part of a suite would take the other parts' rows out of the table."""
    first, second = Suite("one"), Suite("one")
    for name in ("slow", "quick"):
        first.add(name, "old", 1.0)
    second.add("quick", "new", 2.0)
    second.add("more", "new", 3.0)
    before = section({"facts": FACTS, "rows": [row | {"date": "2020-01-02"} for row in first.rows]})
    text = section({"facts": FACTS, "rows": second.rows}, before)
    assert [line.split(" | ")[:2] for line in text.splitlines()[2:5]] == [
        ["| slow", "old"],
        ["| quick", "new"],
        ["| more", "new"],
    ]
    assert text.endswith("Rows that did not run: 2020-01-02.</sub>")


def test_only_the_suite_that_ran_is_made_anew() -> None:
    """A quick run of one suite must not wipe the numbers of the slow ones."""
    text = "a\n<!-- begin one -->\nold\n<!-- end one -->\nb\n<!-- begin two -->\nkept\n<!-- end two -->\n"
    once = replaced(text, "one", "new")
    assert once == text.replace("old", "new")
    assert replaced(once, "one", "new") == once
    with pytest.raises(ValueError, match="three"):
        replaced(text, "three", "new")


@pytest.mark.parametrize(
    "suite", sorted(path.stem for path in README.parent.glob("*.py") if "Suite(" in path.read_text())
)
def test_the_readme_has_a_place_for_every_suite(suite: str) -> None:
    """An hour of measuring that ends with "no markers" has to be done again."""
    if suite != "harness":
        assert replaced(README.read_text(), suite, "x")
