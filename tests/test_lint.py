"""The rules that a tool can hold are held by a tool: format, lint, types, C style, length."""

from __future__ import annotations

import ast
import pathlib
import subprocess
from collections.abc import Iterator

from tests.support.checkout import PYTHON_ROOTS, ROOT, needs_checkout, run_tool

pytestmark = needs_checkout

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def sources(*patterns: str) -> list[pathlib.Path]:
    """The project's own source files of these patterns, without what a build wrote."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        found = [ROOT / line for line in listed.stdout.splitlines()]
    else:  # an unpacked sdist has no git
        found = [path for pattern in patterns for path in ROOT.glob(f"[!.]*/**/{pattern.removeprefix('*')}")]
    return sorted(path for path in found if path.is_file())


def test_python_is_formatted() -> None:
    """Otherwise a change of layout hides the change of behaviour from whoever reads the history."""
    run_tool("ruff", "format", "--check", ".")


def test_python_passes_the_linter() -> None:
    """Otherwise a wall-clock read, a swallowed error or a shadowed name reaches users."""
    run_tool("ruff", "check", ".")


def test_types_hold() -> None:
    """Otherwise None, bytes and views meet at run time, in the user's process."""
    run_tool("mypy")


def test_cython_passes_its_linter() -> None:
    """Otherwise the thin layer gathers unused names and copies of logic that belongs to C."""
    files = sources("cext/*.pyx", "cext/*.pxd")
    assert files
    run_tool("cython-lint", *[str(path) for path in files])


def test_c_is_formatted() -> None:
    """Otherwise C drifts from one style to one a file, and reviews are about spaces."""
    folders = ("cext/core", "bindings/spark/java/native")
    files = sources(*[f"{folder}/*.{suffix}" for folder in folders for suffix in "ch"])
    assert files
    style = f"--style=file:{ROOT / 'cext/.clang-format'}"
    run_tool("clang-format", style, "--dry-run", "-Werror", *[str(path) for path in files])


def test_files_are_short() -> None:
    """A file past 600 lines has a second noun in it, which nobody finds by its name."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources("*.py", "*.pyx", "*.pxd", "*.pxi", "*.pyi", "*.c", "*.h", "*.java")
        if (lines := len(path.read_text().splitlines())) > FILE_LINES_MAX
    }
    assert not long


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """All statements of a tree; expressions, which are most of it, are not gone through."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from statements(node)


def test_functions_fit_a_screen() -> None:
    """A function that does not fit a screen is reviewed in pieces, and its error paths not at all."""
    long = []
    for path in sources("*.py"):
        for node in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # The signature and the docstring are read on their own.
                body = node.body[1:] if ast.get_docstring(node) else node.body
                length = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                if length > FUNCTION_LINES_MAX:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length} lines")
    assert not long


# Methods of pathlib.Path that touch the disk.
FILE_CALLS = {
    *("open", "read_bytes", "read_text", "write_bytes", "write_text", "touch", "unlink", "rename", "mkdir", "rmdir"),
    *("exists", "is_file", "is_dir", "is_symlink", "stat", "lstat", "iterdir", "glob", "rglob", "samefile"),
    *("chmod", "symlink_to", "hardlink_to", "readlink", "resolve", "expanduser"),
}
#: Modules that ruff's list in pyproject.toml bans, when they are imported by a name in a string.
BANNED_MODULES = {
    "threading",
    "concurrent",
    "queue",
    "asyncio",
    "multiprocessing",
    "random",
    "secrets",
    "mmap",
    "fcntl",
    "sqlite3",
}
#: Where ruff's list is set aside above runtime, and why.
EXCEPTIONS = {
    "engine/tierlog/serving/accepting.py": "a listening socket, and what its lack of descriptors does",
    "engine/tierlog/serving/connection.py": "a protocol of the loop: bytes come and go by its calls",
    "engine/tierlog/serving/http_endpoint.py": "on the loop, lest one that stands look healthy",
    "engine/tierlog/serving/outgoing.py": "a protocol of the loop, as a client",
    "engine/tierlog/serving/reloaded_files.py": "the TLS of connections that come in",
    "engine/tierlog/serving/response_writer.py": "the type of the loop's transports",
    "engine/tierlog/serving/server.py": "connections are tasks and sockets of the loop; it starts that of a process",
    "bindings/spark/pyspark_tierlog/plan/process.py": "the child asks its own pipe whether the driver is gone",
}


def above_runtime() -> list[pathlib.Path]:
    """The production modules that may touch the world through tierlog.runtime alone."""
    found = [path for root in PYTHON_ROOTS for path in sorted(root.rglob("*.py")) if "runtime" not in path.parts]
    assert len(found) > 100
    return found


def calls(path: pathlib.Path) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def touches_files(call: ast.Call) -> bool:
    """Whether this is a call of open() or of a pathlib method that touches the disk."""
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in FILE_CALLS:
        return False
    handed = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(ast.unparse(value).endswith("machine") for value in handed):
        return False  # something of ours, as LogSegment.open, that goes through the machine's files
    receiver = ast.unparse(call.func.value).lower().rsplit(".", 1)[-1]
    # Neither a client's calls nor the resolving of a partition's history touch a disk.
    return "files" not in receiver and "store" not in receiver and receiver.lstrip("_") not in ("client", "history")


def test_files_are_reached_through_runtime() -> None:
    """Otherwise a full disk, a short write or a crash at that point cannot be tried, and fails first at the user's."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)[:80]}"
        for path in above_runtime()
        for node in calls(path)
        if touches_files(node)
    ]
    assert not found


def test_what_touches_files_is_seen() -> None:
    """Otherwise the test above finds nothing because it looks for nothing."""
    seen = ["open(p)", "Path(p).is_file()", "folder.iterdir()", "(folder / 'x').read_bytes()", "path.stat()"]
    fine = ["self._files.stat(p)", "machine.files.rename(a, b)", "text.replace('a', 'b')", "tier.store.open(p)"]
    fine.append("LogSegment.open(self._machine, folder, 5)")
    for text, expected in [(text, True) for text in seen] + [(text, False) for text in fine]:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert touches_files(call) is expected, text


def test_nothing_is_imported_around_the_linter() -> None:
    """Otherwise a thread or a lock comes in by a name in a string, and the simulator hangs on it."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path in above_runtime()
        for node in calls(path)
        if ast.unparse(node.func).rsplit(".", 1)[-1] in ("import_module", "__import__")
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and str(node.args[0].value).split(".")[0] in BANNED_MODULES
    ]
    assert not found


def test_exceptions_are_named() -> None:
    """Otherwise a comment lifts the ban wherever it is in somebody's way, and the seam has holes again."""
    lifted = {
        str(path.relative_to(ROOT))
        for path in above_runtime()
        if any("noqa" in line and "TID251" in line for line in path.read_text().splitlines())
    }
    assert lifted == EXCEPTIONS.keys()


def test_native_modules_stay_out_of_the_world() -> None:
    """Otherwise a Cython module waits, locks or draws lots where no test can."""
    banned = BANNED_MODULES | {"time", "socket", "os", "tempfile", "shutil"}
    found = {
        f"{path.relative_to(ROOT)}: {line}"
        for path in sources("cext/*.pyx", "cext/*.pxd")
        for line in path.read_text().splitlines()
        if line.lstrip().startswith(("import ", "from ")) and line.split()[1].split(".")[0] in banned
    }
    assert not found
