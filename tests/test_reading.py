"""``tierlog.read`` against what real consumers got from the same buckets and logs."""

from __future__ import annotations

import pathlib

import pytest

import tierlog
from tests.conftest import DATA, FIXTURES
from tests.support.golden import ROW_COLUMNS, Case, answers, config_of, consumed, log_folders, rows_of, tiered_topics

CASES = [*tiered_topics(DATA), *(tiered_topics(FIXTURES) if (FIXTURES / "README.md").is_file() else ())]
LOGS = [*log_folders(DATA), *(log_folders(FIXTURES) if (FIXTURES / "README.md").is_file() else ())]
ISOLATIONS = ("read_uncommitted", "read_committed")


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.run.parent.name}-{case}")
def test_every_bucket_reads_as_a_consumer_read_it(case: Case, isolation: str) -> None:
    """Records of some bucket would be missing, repeated, out of order or wrong."""
    wanted = answers(case, isolation)
    if wanted is None:
        pytest.skip(f"no answers for {case}")
    reader = tierlog.read(
        case.objects, case.topic, columns=ROW_COLUMNS, isolation_level=isolation, config=config_of(case.run)
    )
    assert rows_of(reader.read_all()) == wanted


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(("folder", "topic"), LOGS, ids=lambda value: str(value).removeprefix(str(DATA.parent)))
def test_every_log_directory_reads_as_a_consumer_read_it(folder: pathlib.Path, topic: str, isolation: str) -> None:
    """Records of some disk would be missing or wrong: compacted, in the active segment, of open transactions."""
    run = next(parent for parent in folder.parents if (parent / "topics.json").exists())
    wanted = consumed(run, topic, isolation)
    assert wanted is not None
    reader = tierlog.read(folder, topic, columns=ROW_COLUMNS, isolation_level=isolation)
    got = rows_of(reader.read_all())
    here = {int(path.name.rpartition("-")[2]) for path in folder.glob(f"{topic}-*") if path.is_dir()}
    assert got == [row for row in wanted if row[0] in here]
