"""The commands of the page for the worst day, as they stand there, in their order."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import time

import pytest

from tests.support.checkout import needs_checkout
from tests.support.command import Outcome, run_process
from tests.support.metadata_topics import read_topic
from tests.support.pages import commands_of
from tierlog.remote.metadata.snapshots.snapshot_file import read_snapshot
from tierlog.runtime.machine import Machine

pytestmark = needs_checkout

PAGE = "docs/disaster-recovery.md"
OLD, NEW = "LXgZVch-QAKKTdPy9KTPDw", "bm90LXRoZS1vbGQtb25lIQ"


@pytest.fixture
def places(tmp_path: pathlib.Path, data: pathlib.Path) -> dict[str, str]:
    """The page's names, and what stands for each here."""
    shutil.copytree(data / "main-plain" / "objects", tmp_path / "tier")
    for path in (tmp_path / "tier").rglob("*"):
        os.utime(path, (time.time() - 3600,) * 2)
    (tmp_path / "broker.properties").write_text("rsm.config.chunk.size=70000\n")
    return {
        "s3://tier": str(tmp_path / "tier"),
        "s3://elsewhere": str(tmp_path / "elsewhere"),
        "broker.properties": str(tmp_path / "broker.properties"),
        "copied.json": str(tmp_path / "copied.json"),
        "/restore/": f"{tmp_path}/restore/",
        "/restored/": f"{tmp_path}/restored/",
        "/restored-copy/": f"{tmp_path}/restored-copy/",
        "/metadata.snapshot": str(tmp_path / "metadata.snapshot"),
        "/export": str(tmp_path / "export"),
        "/var/kafka/logs": str(data / "main-plain" / "local-before" / "broker1"),
    }


def run(words: list[str], places: dict[str, str]) -> Outcome:
    orders = "fx-txn" if "/var/kafka/logs" in words else "fx-epochs"  # this broker's disk has no other that was tiered
    arguments = [places.get(word, word.replace("orders", orders)) for word in words]
    if ">" in arguments:
        at = arguments.index(">")
        outcome = run_process(*arguments[:at])
        pathlib.Path(arguments[at + 1]).write_bytes(outcome.out)
    else:
        outcome = run_process(*arguments)
    assert outcome.code == 0, (words, outcome.err)
    return outcome


def test_the_story_as_it_is_told(tmp_path: pathlib.Path, places: dict[str, str]) -> None:
    """Nobody has the nerve to find out what a page meant while a cluster is down."""
    # what goes to a Kafka is run by tests/interop/test_restore.py, which follows part 4 on a real one
    told = [words for words in commands_of(PAGE) if not any(":9092" in word for word in words)]
    verbs = ["restore"] * 3 + ["ls", "restore", "copy", "export", "restore", "copy", "restore"]
    assert [words[0] for words in told] == verbs
    dry, written, snapshot, listed, mapped, copied, exported, moved, elsewhere, registered = told
    assert "would be registered" in run(dry, places).text
    run(written, places)
    topic = read_topic([tmp_path / "restore"])
    manifests = list((tmp_path / "tier").rglob("*.rsm-manifest"))
    assert len(topic.finished) == len(manifests)
    assert len(list((tmp_path / "restore").glob("__remote_log_metadata-*"))) == 50
    run(snapshot, places)
    assert run(listed, places).text.count("COPY_SEGMENT_FINISHED") == len(manifests)
    table, _ = read_snapshot(str(tmp_path / "metadata.snapshot"), machine=Machine())
    with table:
        assert table.figures.segments == len(manifests)
    looked = run(mapped, places)
    assert f"looks below {NEW} only" in looked.err
    assert "last leader epoch 5" in looked.text
    run(copied, places)
    assert "note: " not in run(mapped, places).err  # the copies are taken
    assert "needs a leader of epoch 5" in run(exported, places).err
    assert list((tmp_path / "export").glob("fx-epochs-*/*.log"))
    run(moved, places)
    assert len(read_topic([tmp_path / "restored"]).finished) == len(manifests)
    run(elsewhere, places)
    run(registered, places)
    copies = [json.loads(line) for line in (tmp_path / "copied.json").read_text().splitlines()]
    assert len(read_topic([tmp_path / "restored-copy"]).finished) == len(copies) > 0
