"""Chooses the committed subset of the golden data: run as ``python tests/data/refresh.py FIXTURES``.

Everything is copied byte for byte but ``objects.json``, which is cut to the topics that stay.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
WHOLE = ["bad", "keys", "record-v0-v1"]
LIMIT_BYTES = 12 << 20

# run -> topic -> the folders of the run that keep this topic; "broker1/" is the nesting of runs with two brokers
ANSWERS = ("objects", "expected")
LOG = ("objects", "expected", "local-before", "expected-dump", "broker-after-stop", "expected-before-local-delete")
TOPICS = {
    "zstd-aes": {"fx-zstd-a-json": LOG, "fx-zstd-a-txn": LOG},
    "custom-meta": {"fx-custom-txn": ANSWERS},
    "local-tiered": {"fx-local-json": ANSWERS, "fx-local-txn": LOG},
    "main-plain": {
        "fx-txn": LOG,
        "fx-compact": LOG,
        "fx-epochs": ANSWERS,
        "fx-lso": ("objects", "expected-after-delete"),
    },
}
METADATA_RUNS = ("main-plain", "zstd-aes")
METADATA = ("local-before", "expected-dump", "broker-after-stop", "expected-dump/rlmm-after-stop")
RUN_FILES = ["config.json", "topics.json"]
#: Of the log directories that are kept in part.
CHECKPOINTS = "*-offset-checkpoint"


def belongs(name: str, topic: str) -> bool:
    """Whether a file or folder name is one of this topic and of no other that starts alike."""
    rest = name.removeprefix(topic)
    if rest == name:
        return False
    return rest[:1] == "." or (rest[:1] == "-" and (rest[1:2].isdigit() or len(rest) >= 23))


def copy_matching(source: pathlib.Path, target: pathlib.Path, topic: str) -> None:
    """Copies what belongs to the topic, at any depth, and leaves the rest."""
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and any(belongs(part, topic) for part in relative.parts):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / relative)


def copy_run(source: pathlib.Path, target: pathlib.Path, topics: dict[str, tuple[str, ...]]) -> None:
    for topic, folders in topics.items():
        for folder in folders:
            copy_matching(source / folder, target / folder, topic)
    for folder in METADATA if source.name in METADATA_RUNS else ():
        copy_matching(source / folder, target / folder, "__remote_log_metadata")
    for path in sorted(source.rglob(CHECKPOINTS)):
        folder = target / path.relative_to(source).parent
        if folder.is_dir() and any((folder / f"{topic}-0").is_dir() for topic in topics):
            shutil.copyfile(path, folder / path.name)
    for name in RUN_FILES:
        shutil.copyfile(source / name, target / name)
    kept = [
        entry
        for entry in json.loads((source / "objects.json").read_text())
        if (target / "objects" / entry["key"]).is_file()
    ]
    (target / "objects.json").write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    fixtures = pathlib.Path(sys.argv[1])
    for name in [*WHOLE, *TOPICS]:
        shutil.rmtree(HERE / name, ignore_errors=True)
    for name in WHOLE:
        shutil.copytree(fixtures / name, HERE / name, copy_function=shutil.copyfile)
    for run, topics in TOPICS.items():
        copy_run(fixtures / run, HERE / run, topics)
    for path in HERE.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    size_bytes = sum(path.stat().st_size for path in HERE.rglob("*") if path.is_file())
    print(f"{size_bytes} bytes of {LIMIT_BYTES}")
    if size_bytes > LIMIT_BYTES:
        sys.exit("too much")


if __name__ == "__main__":
    main()
