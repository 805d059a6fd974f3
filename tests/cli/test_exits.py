"""How the command ends: codes that scripts can rely on, one line on stderr, no traceback."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.support.batches import Batch, encode
from tests.support.checkout import IN_CHECKOUT, ROOT
from tests.support.command import Outcome, Run, command_line, environment, run_process
from tierlog.cli.exits import ExitCode, TerminatedError, guarded, one_line
from tierlog.errors import ConfigError, CorruptRecordError, StoreUnavailableError, UnknownTopicError

HEAVY = ("numpy", "pyarrow", "obstore", "pydantic", "cryptography", "Crypto", "pandas", "rich.progress")


def segment(folder: pathlib.Path, batches: int, *, size_bytes: int = 10) -> pathlib.Path:
    path = folder / "t-0" / f"{0:020d}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(encode(Batch(offset, (b"v" * size_bytes,))) for offset in range(batches)))
    return path


def quiet(outcome: Outcome) -> bool:
    """One line that begins with the command's name, and no traceback."""
    return outcome.err.startswith("tierlog: ") and outcome.err.count("\n") == 1 and "Traceback" not in outcome.err


def test_version_answers_without_loading_anything_heavy() -> None:
    """Otherwise every completion of a shell and every --version costs a second."""
    probe = (
        "import sys; sys.argv = ['tierlog', '--version']\n"
        "from tierlog.cli import main\n"
        "try: main()\n"
        f"except SystemExit: print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], env=environment(), capture_output=True, text=True, check=True)
    version, heavy = done.stdout.splitlines()
    assert version.startswith("tierlog ")
    assert heavy == "[]"


def test_the_command_never_loads_pandas(tmp_path: pathlib.Path) -> None:
    """Otherwise pyarrow imports it on the way: half a second for each call where the extra `spark` is installed."""
    path = segment(tmp_path, 3)
    probe = (
        f"import sys; sys.argv = ['tierlog', 'cat', {str(path)!r}, '--limit', '1']\n"
        "from tierlog.cli import main\n"
        "try: main()\n"
        "except SystemExit: print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("cat",),
        ("cat", "{path}", "--format", "xml"),
        ("cat", "{path}", "--grep", "("),
        ("cat", "{path}", "--since", "yesterday"),
        ("cat", "{path}", "--log-start", "x"),
        ("cat", "{path}", "--from", "-3"),
        ("cat", "{path}", "--config", "/does/not/exist"),
        ("verify", "{path}", "--jobs", "0"),
        ("verify", "{folder}/notes.txt"),
        ("ls", "{folder}/notes.txt"),
        ("cat", "{folder}/notes.txt"),
        ("export", "{folder}/notes.txt", "t", "{folder}/out"),
        ("ls", "{folder}", "--layout", "other"),
        ("ls", "gopher://bucket/prefix"),
    ],
)
def test_wrong_use_ends_with_2(tierlog: Run, tmp_path: pathlib.Path, arguments: tuple[str, ...]) -> None:
    """Otherwise a script cannot tell its own mistake from a broken bucket."""
    path = segment(tmp_path, 3)
    (tmp_path / "notes.txt").write_text("x")
    outcome = tierlog(*(argument.format(path=path, folder=tmp_path) for argument in arguments))
    assert (outcome.code, outcome.out) == (2, b"")
    assert outcome.err
    assert "Traceback" not in outcome.err


def test_the_module_is_the_command() -> None:
    """Otherwise a user whose scripts are not on the path has no command."""
    run = [sys.executable, "-m", "tierlog", "--version"]
    done = subprocess.run(run, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tierlog ")


KEYS = "key.prefix=tier/\nstore.secret_access_key=hunter2\n"


PIPES = ("-", "pipe", "/dev/stdin")
VERBS = (("ls",), ("cat", "--format", "raw"), ("dump",), ("verify", "--no-notes"))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("verb", "how"),
    [
        *((VERBS[0], how) for how in PIPES),
        *((verb, "pipe") for verb in VERBS[1:]),
        *(pytest.param(verb, how, marks=pytest.mark.more) for verb in VERBS[1:] for how in ("-", "/dev/stdin")),
    ],
)
def test_a_configuration_from_a_pipe(tmp_path: pathlib.Path, how: str, verb: tuple[str, ...]) -> None:
    """Otherwise `--config <(pass show tier)` is refused, and secrets have to lie in files."""
    segment(tmp_path / "disk" / "tier", 3)
    reading, writing = os.pipe()
    os.write(writing, KEYS.encode())
    os.close(writing)
    name, *options = verb
    try:
        path = f"/dev/fd/{reading}" if how == "pipe" else how
        done = subprocess.run(
            command_line(name, tmp_path / "disk", *options, "--config", path),
            stdin=reading if how != "pipe" else subprocess.DEVNULL,
            capture_output=True,
            env=environment(),
            pass_fds=(reading,),
            timeout=60,
            check=False,
        )
    finally:
        os.close(reading)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"hunter2" not in done.stdout


def test_a_pipe_is_read_once_for_both_sides(tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Otherwise the second reader of stdin gets an empty configuration: data would be written in the clear."""
    both = ["--config", "-", "--dest-config", "-"]
    line = command_line("copy", data / "main-plain/objects", tmp_path / "bucket", "fx-lso", *both)
    keys = b"compression.enabled=true\n"
    done = subprocess.run(line, input=keys, capture_output=True, env=environment(), timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for manifest in (tmp_path / "bucket").rglob("*.rsm-manifest"):
        assert b'"compression":true' in manifest.read_bytes()


def test_a_configuration_without_an_end_is_refused(tmp_path: pathlib.Path) -> None:
    """Otherwise a wrong path (a device) fills the memory."""
    outcome = run_process("ls", segment(tmp_path, 1), "--config", "/dev/zero")
    assert outcome.code == 2
    assert quiet(outcome)
    assert "more than the limit" in outcome.err


def test_an_unknown_key_names_the_nearest(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a misspelt key is found when the wrong data has been read."""
    config = tmp_path / "tier.properties"
    config.write_text("rsm.config.key.prefux=a\n")
    outcome = tierlog("ls", segment(tmp_path, 1), "--config", config)
    assert outcome.code == 2
    assert quiet(outcome)
    assert "key.prefix" in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "{folder}/nothing/here"),
        ("cat", "{folder}", "no-such-topic"),
        ("cat", "{folder}", "t", "--partition", "7"),
        ("verify", "{folder}", "no-such-topic"),
        ("export", "{folder}", "no-such-topic", "{folder}/out"),
    ],
)
def test_what_is_not_there_ends_with_3(tierlog: Run, tmp_path: pathlib.Path, arguments: tuple[str, ...]) -> None:
    """Otherwise a lost bucket looks like an empty one."""
    segment(tmp_path, 3)
    outcome = tierlog(*(argument.format(folder=tmp_path) for argument in arguments))
    assert (outcome.code, outcome.out) == (3, b"")
    assert quiet(outcome)


def test_rows_before_a_fault_are_printed(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a damaged batch hides the sound ones before it, or passes for the end of the log."""
    path = segment(tmp_path, 10)
    size = len(encode(Batch(0, (b"v" * 10,))))
    damaged = bytearray(path.read_bytes())
    damaged[6 * size + 65] ^= 1
    path.write_bytes(damaged)
    outcome = tierlog("cat", path, "--format", "json")
    assert outcome.code == 3
    assert [line["offset"] for line in outcome.lines] == [0, 1, 2, 3, 4, 5]
    assert quiet(outcome)
    assert f"@ {6 * size}" in outcome.err
    skipped = tierlog("cat", path, "--format", "json", "--no-fail-on-data-loss")
    assert skipped.code == 0
    assert [line["offset"] for line in skipped.lines] == [0, 1, 2, 3, 4, 5, 7, 8, 9]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away_is_no_error(tmp_path: pathlib.Path, unbuffered: str) -> None:
    """Otherwise `tierlog cat … | head` ends in a traceback, or a write that took a part of the rows passes for all."""
    path = segment(tmp_path, 3000, size_bytes=200)
    with subprocess.Popen(
        command_line("cat", path, "--format", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED=unbuffered),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"topic":"t"')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == ExitCode.BROKEN_PIPE


def test_an_interrupt_ends_with_130(tmp_path: pathlib.Path) -> None:
    """Otherwise ^C prints a traceback, or scripts take it for success."""
    path = segment(tmp_path, 3000, size_bytes=200)
    with subprocess.Popen(
        command_line("cat", path, "--format", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()  # the pipe is full from here on, and the command waits
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read() == b"tierlog: interrupted\n"
        assert process.wait(timeout=60) == ExitCode.INTERRUPTED


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A log directory of two segments of 100 MB: the CRC does not cover a batch's offset."""
    batch = bytearray(encode(Batch(0, (b"v" * 1024,) * 1000)))
    folder = tmp_path_factory.mktemp("large") / "t-0"
    folder.mkdir()
    for first in (0, 100_000):
        with (folder / f"{first:020d}.log").open("wb") as log:
            for offset in range(first, first + 100_000, 1000):
                batch[:8] = offset.to_bytes(8, "big")
                log.write(batch)
    return folder.parent


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("verb", "number"),
    [
        ("export", signal.SIGTERM),
        ("export", signal.SIGINT),
        ("json", signal.SIGTERM),
        ("json", signal.SIGHUP),
        ("parquet", signal.SIGINT),
    ],
)
def test_a_command_that_is_ended_leaves_no_half_files(
    tmp_path: pathlib.Path, large: pathlib.Path, verb: str, number: signal.Signals
) -> None:
    """Otherwise a job that its scheduler ends fills the disk with parts of files, one each time."""
    if verb == "export":
        line = command_line("export", large, "t", tmp_path)
    else:
        line = command_line("cat", large, "--format", verb, "--out", tmp_path / "out")
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stderr is not None
        while not list(tmp_path.rglob("*.tierlog-part")):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.001)
        process.send_signal(number)
        process.send_signal(number)
        told = process.stderr.read()
        assert process.wait(timeout=60) == 128 + number, told
    assert told == (b"tierlog: interrupted\n" if number == signal.SIGINT else b"tierlog: terminated\n")
    assert list(tmp_path.rglob("*.tierlog-part")) == []


#: A machine so busy that the timer rings before the hook that set it has returned.
LATE_HOOK = (
    "import signal\n"
    "set_timer, signal.setitimer = signal.setitimer, lambda *given: late_timer(*given)\n"
    "def late_timer(*given):\n"
    "    signal.setitimer = set_timer\n"
    "    set_timer(*given)\n"
    "    while signal.getitimer(signal.ITIMER_REAL)[0]: pass\n"
    "    for _ in range(1000): pass\n"
)


@pytest.mark.parametrize("before", ["", LATE_HOOK], ids=["idle", "busy"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_hits_a_finalizer_ends_the_command_too(number: signal.Signals, before: str) -> None:
    """Python drops what is raised in one: a job that its scheduler ended went on."""
    probe = before + (
        "import os, time\n"
        "from tierlog.cli.exits import end_orderly_on_signals, leave_quietly\n"
        "class Hit:\n"
        "    def __del__(self):\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "        for _ in range(100_000): pass\n"
        "        print('not reached')\n"
        "def work():\n"
        "    Hit()\n"
        "    time.sleep(60)\n"
        "    print('went on')\n"
        "end_orderly_on_signals()\n"
        "leave_quietly(work)"
    )
    done = subprocess.run([sys.executable, "-c", probe], env=environment(), capture_output=True, check=False)
    assert done.stdout == b""
    assert done.returncode == 128 + number
    assert done.stderr == (b"tierlog: interrupted\n" if number == signal.SIGINT else b"tierlog: terminated\n")


def test_a_reader_that_does_not_read_holds_up_no_end(tmp_path: pathlib.Path) -> None:
    """Otherwise the job behind a pipe that stands still can only be killed."""
    path = segment(tmp_path, 3000, size_bytes=200)
    with subprocess.Popen(
        command_line("cat", path, "--format", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == ExitCode.TERMINATED


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_ends_with_3(tmp_path: pathlib.Path) -> None:
    """Otherwise a cut-off file looks like a whole export."""
    path = segment(tmp_path, 300)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        outcome = run_process("cat", path, "--format", "json", stdout=full)
    finally:
        os.close(full)
    assert outcome.code == 3
    assert quiet(outcome)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (UnknownTopicError("x"), 3),
        (CorruptRecordError("x"), 3),
        (StoreUnavailableError("x"), 3),
        (OSError(5, "x"), 3),
        (MemoryError(), 3),
        (ZeroDivisionError("x"), 3),
        (KeyboardInterrupt(), 130),
        (TerminatedError(signal.SIGTERM), 143),
        (BrokenPipeError(), 141),
        (BaseException("as pyo3 panics are"), 3),
    ],
)
def test_every_exception_has_a_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise some error reaches the user as a traceback, or as success."""
    monkeypatch.delenv("TIERLOG_DEBUG", raising=False)

    def verb() -> None:
        raise error

    with pytest.raises(SystemExit) as ending:
        guarded(verb)()
    said = capsys.readouterr().err
    assert ending.value.code == code
    assert "Traceback" not in said
    assert said.count("\n") == (0 if code == 141 else 1)


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a bug report holds nothing to go by."""
    monkeypatch.setenv("TIERLOG_DEBUG", "1")

    def verb() -> None:
        raise ZeroDivisionError("here")

    with pytest.raises(SystemExit):
        guarded(verb)()
    assert "Traceback" in capsys.readouterr().err


def test_messages_cannot_drive_a_terminal() -> None:
    """Otherwise an object's name in a hostile bucket rewrites the operator's screen."""
    assert one_line("a\x1b[2Jb\nc\x9b d") == "a\\x1b[2Jb c\\x9b d"


def ignoring(*numbers: signal.Signals) -> Callable[[], None]:
    """What ``nohup`` and ``&`` do, in a child before it starts."""

    def begin() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    return begin


def test_a_hangup_under_nohup_is_ignored() -> None:
    """Otherwise a long copy that was started with nohup ends when its terminal does."""
    probe = (
        "import os, signal\n"
        "from tierlog.cli.exits import end_orderly_on_signals, leave_quietly\n"
        "end_orderly_on_signals()\n"
        "leave_quietly(lambda: os.kill(os.getpid(), signal.SIGHUP))"
    )
    run = [sys.executable, "-c", probe]
    for begin, code in ((ignoring(signal.SIGHUP), 0), (None, 129)):
        assert subprocess.run(run, env=environment(), preexec_fn=begin, check=False).returncode == code


def test_these_pass_under_nohup() -> None:
    """Otherwise `nohup make test &` fails, and the machine's load is blamed for it."""
    if not IN_CHECKOUT:
        pytest.skip("runs pytest over the checkout")
    chosen = f"{__file__}::test_what_fails_behind_a_signal_is_the_signals"
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", chosen]
    begin = ignoring(signal.SIGHUP, signal.SIGINT)
    done = subprocess.run(
        run, cwd=ROOT, env=environment(), preexec_fn=begin, capture_output=True, text=True, check=False
    )
    assert "3 passed" in done.stdout, done.stdout[-3000:]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_what_fails_behind_a_signal_is_the_signals(number: signal.Signals, code: int) -> None:
    """Otherwise a job that was ended looks like one whose store failed, and is tried again, or somebody is called."""
    probe = (
        "import os\n"
        "from tierlog.cli import exits\n"
        "from tierlog.errors import StoreError\n"
        "def verb():\n"
        "    try:\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "        import time; time.sleep(60)\n"
        "    finally:\n"
        "        raise StoreError('the reader was closed')\n"
        "exits.end_orderly_on_signals()\n"
        "exits.leave_quietly(verb)\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        code,
        "tierlog: interrupted\n" if number == signal.SIGINT else "tierlog: terminated\n",
    )
