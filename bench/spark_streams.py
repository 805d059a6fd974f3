"""Spark's streams over a topic whose history lies in the tier, by Kafka's source and by ours.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.spark_streams [--scale 0.1] [--rounds 5] [--forms plain,zstd+AES]

The broker, the topic and the tier are those of ``bench.spark``; then a twentieth as much is produced that stays on the
broker's disk. A query is ``Trigger.AvailableNow`` from the first offset into a noop sink, with a checkpoint of its own.
The tier alone is read by both our engines; all of the topic by the Kafka source and by ``mode=remote-preferred``. As
many rows come from both, and what the tier alone lacks is what was produced last. CPU seconds are of Spark's processes;
the broker's are a row of their own.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import statistics
from typing import Any

from bench.harness import Round, Rounds, Suite, arguments, equal, spread, work_folder
from bench.spark import CACHE_BYTES, HEAP, KAFKA, run_application
from bench.stream_application import SOURCES
from bench.topics import GIGABYTES, broker_settings, fill, fill_tier, our_options
from tests.support.peers import broker, install, plugin

OURS = {
    "tierlog-jar": "the tier alone, columnar reader",
    "tierlog-python": "the tier alone, Python path",
    "tierlog-preferred": "tier, then broker, columnar reader",
}
#: By form, against the Kafka source.
BARS = {"plain": {"tierlog-jar": 10.0, "tierlog-preferred": 3.5}, "zstd + AES": {"tierlog-jar": 4.0}}
#: Most CPU of the broker, as a part of what the Kafka source makes it use.
BROKER_BAR = 0.15
#: Of the topic, what only the broker has.
LOCAL_PART = 0.05


def measure(suite: Suite, folder: pathlib.Path, form: str, chosen: Any) -> None:
    root = folder / "bucket"
    root.mkdir(parents=True)
    cache = max(64 << 20, int(CACHE_BYTES * chosen.scale))
    topic = f"streams-{form.replace(' + ', '-')}"
    with broker.running(folder / "broker", heap=HEAP, extra=broker_settings(form, root, folder, cache)) as running:
        tiered = sum(fill_tier(running, topic, chosen.codec, chosen.scale).values())
        fill(running, topic, chosen.codec, int(GIGABYTES * 1e9 * chosen.scale * LOCAL_PART))
        words = ["--path", str(root), "--options", json.dumps(our_options(form, root, folder)), "--sources", *SOURCES]
        rows = run_application(running, topic, *words, rounds=chosen.rounds, module="bench.stream_application")
    found: Rounds = {}
    for row in rows:
        if row["run"] > 0:
            found.setdefault(row["source"], []).append(Round(row["wall"], row["cpu"]))
    whole = {row["source"]: row["rows"] for row in rows if row["source"] in (*KAFKA, "tierlog-preferred")}
    equal(f"{form}, rows of the topic", whole)
    of_tier = {row["source"]: row["rows"] for row in rows if row["source"] in ("tierlog-jar", "tierlog-python")}
    equal(f"{form}, rows of the tier", {"offsets": tiered} | of_tier)
    for ours, told in OURS.items():
        for peer, name in KAFKA.items():
            bar = BARS.get(form, {}).get(ours)
            suite.seconds(f"{form}, {told}", found, peer, ours=ours, name=name, bar=bar)
    cpu = {
        source: [row["broker_cpu"] for row in rows if row["source"] == source and row["run"] > 0]
        for source in (*KAFKA, "tierlog-preferred")
    }
    least = min(statistics.median(cpu[source]) for source in KAFKA)
    part = statistics.median(cpu["tierlog-preferred"]) / max(least, 0.01)
    told = (
        f"tier, then broker {spread(cpu['tierlog-preferred'], '.2f')}; Kafka source {spread(cpu['kafka-tuned'], '.2f')}"
    )
    what = f"{form}, tier, then broker: the broker's CPU s, × Kafka source"
    suite.add(what, told, part, BROKER_BAR if form == "plain" else None, least=False)
    shutil.rmtree(folder)


def main() -> None:
    chosen = arguments(__doc__, forms="plain,zstd+AES" if plugin.jars() else "plain", codec="none", work="")
    suite = Suite("spark_streams", install.versions())
    with work_folder(chosen.work) as folder:
        for form in chosen.forms.split(","):
            form = form.replace("zstd+AES", "zstd + AES")
            measure(suite, folder / form.replace(" + ", "-"), form, chosen)
    suite.save()


if __name__ == "__main__":
    main()
