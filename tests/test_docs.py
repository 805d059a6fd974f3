"""What the documents say is what the code does."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
import types

import pytest

import tierlog
from tests.support.checkout import IN_CHECKOUT, ROOT, needs_checkout
from tests.support.replica_server import replica

pytestmark = needs_checkout

_BOUNDS = ("Offsets", "Timestamp", "OffsetsByTimestamp")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")]) if IN_CHECKOUT else []


@pytest.fixture(scope="module")
def generator() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "docs"))  # as for a script: it has modules beside it
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return module


def test_reference_pages_are_fresh(generator: types.ModuleType) -> None:
    """Otherwise a user follows a page that names an option the code refuses (``make docs`` writes them anew)."""
    for path, text in generator.pages().items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)} is stale: run `make docs`"


def test_every_verb_is_on_the_first_page(generator: types.ModuleType) -> None:
    """Otherwise a command that exists is found by nobody, or one is promised that does not."""
    verbs = set(re.findall(r"^## tierlog (\S+)$", generator.command_line(), re.MULTILINE))
    assert verbs == set(re.findall(r"`tierlog ([\w-]+) ?", (ROOT / "README.md").read_text()))


def test_every_option_has_a_meaning(generator: types.ModuleType) -> None:
    """Otherwise a new option of the Spark source is known to its author alone."""
    from pyspark_tierlog.options.source_options import ReadOptions

    assert set(generator.MEANINGS) == set(ReadOptions.model_fields)


def test_the_way_from_sparks_kafka_source_names_every_option() -> None:
    """A user who moves a job over must find each option that it has, and what becomes of it."""
    from pyspark_tierlog.options.source_options import IGNORED, STRATEGIES

    bounds = [f"{side}{kind}" for side in ("starting", "ending") for kind in _BOUNDS]
    same = ["startingOffsetsByTimestampStrategy", "includeHeaders", "failOnDataLoss", "minPartitions"]
    theirs = [*STRATEGIES, *bounds, *same, "maxRecordsPerPartition", "kafka.bootstrap.servers", "kafka.isolation.level"]
    rows = re.findall(
        r"^\| (`.+?) \| (same|ignored|different) \|",
        (ROOT / "docs" / "migrating-from-kafka-source.md").read_text(),
        re.MULTILINE,
    )
    found = {name: verdict for names, verdict in rows for name in re.findall(r"`([^`]+)`", names)}
    assert not (set(theirs) | set(IGNORED)) - set(found)
    assert {name for name in IGNORED if found[name] != "ignored"} == set()
    assert {name for name in theirs if found[name] == "ignored"} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    """A dead link on a page is the end of the way for its reader."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    dead = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not dead


SOURCES = (
    *(f"{room}/**/*.py" for room in ("engine", "bindings", "bench", "tests")),
    *(f"bindings/**/*.{ending}" for ending in ("java", "rs", "[ch]")),
    *("cext/**/*.[ch]", "cext/**/*.pyx"),
)


#: Where a name without a path may lie.
MODULE_ROOTS = ("engine/tierlog", "engine", "bindings/spark", "bindings/spark/pyspark_tierlog", ".")
#: Dotted words that are no modules: a function, calls of Spark.
OTHERS = {"tierlog.read", "tierlog.consume", "spark.read"}
_LOOSE_FILE = re.compile(r"[\w-]+\.(java|rs|c|h|pyx|py)")


def _exists(name: str) -> bool:
    """Whether a dotted name is a module, a room or a file of ours."""
    path = name.replace(".", "/")
    if (ROOT / name).is_file():
        return True
    roots = [ROOT / root for root in MODULE_ROOTS]
    roots += [ROOT / java / "src/main/java" for java in ("bindings/spark/java", "bindings/kafka")]
    return any((root / path).is_dir() or any(root.glob(f"{path}.*")) for root in roots)


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_named_modules_exist(page: str) -> None:
    """Whoever follows a journey to a module that was renamed has to search the tree for it."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    tracked = {path.name for root in ("cext", "bindings", "docs", "tests") for path in (ROOT / root).rglob("*.*")}
    gone, named = [], 0
    for word in " ".join(re.findall(r"`([^`\n]+)`", text)).split():
        if re.fullmatch(r"[\w./-]+/[\w.-]*", word) and "*" not in word:
            named += 1
            gone += [word] * (not any((ROOT / root / word).exists() for root in (*MODULE_ROOTS, "bindings/spark/java")))
        elif _LOOSE_FILE.fullmatch(word):
            gone += [word] * (word not in tracked)
        elif re.fullmatch(r"[a-z_]+(\.\w+)+", word) and word not in OTHERS:
            named += 1
            gone += [word] * (not _exists(word))
    assert not gone
    assert named > 8


def test_the_code_map_names_every_room() -> None:
    """A room without a row has no guide; a row that names a module that is gone sends its reader astray."""
    rows = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    rooms: dict[str, list[str]] = {}
    for names, modules in rows:
        folders = re.findall(r"`([\w.]+)`", names)
        parent = folders[0].rpartition(".")[0] if folders else ""
        for folder in folders:
            rooms[f"{parent}{folder}" if folder.startswith(".") else folder] = re.findall(r"`([^`]+)`", modules)
    engine = ROOT / "engine" / "tierlog"
    found = {
        ".".join(init.parent.relative_to(engine).parts)
        for init in engine.rglob("__init__.py")
        if init.parent != engine and any(path.stem != "__init__" for path in init.parent.glob("*.py"))
    }
    assert found - set(rooms) == set()
    gone = []
    for room, modules in rooms.items():
        inside = engine / room.replace(".", "/")
        for module in " ".join(modules).split() if inside.is_dir() else ():
            file = f"{module.replace('.', '/')}.py"
            gone += [f"{room}: {module}"] * (not any((place / file).exists() for place in (inside, inside.parent)))
    assert not gone


def _headings(page: pathlib.Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)


def _anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_cited_headings_exist() -> None:
    """``docs/formats/PAGE.md, HEADING`` in a comment sends its reader to a place that is there."""
    pages = {page.name: _headings(page) for page in ROOT.glob("docs/formats/*.md")}
    lost, cited = [], 0
    for path in (path for pattern in SOURCES for path in ROOT.glob(pattern)):
        if path == pathlib.Path(__file__) or {"target", "node_modules"} & set(path.parts):
            continue
        text = re.sub(r"\s*\n[\s*#/!]*", " ", path.read_text())
        for page, behind in re.findall(r"docs/formats/([\w-]+\.md), (.{60})", text):
            cited += 1
            if not any(behind.startswith(heading) for heading in pages.get(page, [])):
                lost.append((str(path.relative_to(ROOT)), page, behind))
    assert not lost
    assert cited > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_are_headings(page: pathlib.Path) -> None:
    """A link to a heading that was renamed leaves its reader at the top of a long page."""
    dead = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            there = page if not target else page.parent / target
            dead += [f"{target}#{anchor}"] * (anchor not in map(_anchor, _headings(there)))
    assert not dead


def test_the_ten_lines_run(data: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first thing that a new user does is to paste these lines."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code = next(block for block in blocks if "tierlog.read(" in block)
    config = tmp_path / "broker.properties"
    key = data / "keys" / "k1" / "private.der"
    config.write_text(
        "rsm.config.encryption.enabled=true\n"
        "rsm.config.encryption.key.pairs=k1\n"
        f"rsm.config.encryption.key.pairs.k1.private.key.file={key}\n"
    )
    for said, meant in {
        "s3://tier-bucket/prefix": str(data / "zstd-aes" / "objects"),
        '"orders"': '"fx-zstd-a-json"',
        "broker.properties": str(config),
    }.items():
        assert said in code
        code = code.replace(said, meant)
    exec(compile(code, "README.md", "exec"), {})  # the page's own code
    printed = capsys.readouterr().out
    assert "partition" in printed
    assert "offset" in printed


def test_the_reader_feeds_what_the_page_names(data: pathlib.Path) -> None:
    """pandas, polars and DuckDB are promised on the first page: each must take the reader as it stands there."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code = next(block for block in blocks if "duckdb.sql" in block).replace('"orders"', '"fx-local-json"')
    tail = code.replace("duckdb.sql", "counted = duckdb.sql") + "\nrows = counted.fetchall()\n"
    names: dict[str, object] = {"path": str(data / "local-tiered" / "objects")}
    pytest.importorskip("pandas")
    exec(compile(f"import duckdb, polars, tierlog\n{tail}", "README.md", "exec"), names)
    counts = names["rows"]
    assert isinstance(counts, list)
    assert len(counts) == 2
    assert len(names["frame"]) == sum(count for _, count in counts)  # type: ignore[arg-type]


def test_the_consumer_of_the_page_runs(
    data: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines that read on from the tier at the brokers; they poll until nothing comes."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    code = next(block for block in blocks if "tierlog.consume(" in block)
    path = data / "local-tiered" / "objects"
    with replica(path, tmp_path) as server:
        for said, meant in {"broker:9092": server.bootstrap, '"orders"': '"fx-local-json"', "5.0": "1.0"}.items():
            assert said in code
            code = code.replace(said, meant)
        exec(compile(code, "README.md", "exec"), {"tierlog": tierlog, "path": path})  # the page's own code
    read = tierlog.read(path, "fx-local-json").read_all().num_rows
    assert sum(int(line.split()[-1]) for line in capsys.readouterr().out.splitlines()) == read


def test_the_clients_of_a_replica_have_the_versions_that_are_tested() -> None:
    """Otherwise a user trusts a client in a version that nobody has tried."""
    page = (ROOT / "docs" / "replica.md").read_text()
    told = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE))
    modules = (ROOT / "tests" / "interop" / "clients" / "go.mod").read_text()
    go = {"franz-go": "twmb/franz-go", "sarama": "IBM/sarama", "kafka-go (segmentio)": "segmentio/kafka-go"}
    for client, module in go.items():
        assert f"github.com/{module} {told[client]}\n" in modules
    java = {
        "kafka": ("Kafka's Java", "kafka-con", "kafka-get", "kafka-topics", "Verifiable"),
        "kafka-connect": ("Kafka Connect",),
    }
    for jars, clients in java.items():
        listed = (ROOT / "tests" / "support" / "peers" / f"{jars}.xml").read_text()
        versions = re.findall(r"<kafka.version>(.+)</kafka.version>", listed)
        assert {version for client, version in told.items() if client.startswith(clients)} == set(versions)
    spark = (ROOT / "tests" / "support" / "peers" / "install.py").read_text()
    version = told["Spark's Kafka source"]
    assert f'"TIERLOG_PEER_SPARK", "{version}"' in spark
