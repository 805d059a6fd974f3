"""The rules that a tool can hold are held by a tool: format, lint, types, C style, length."""

from __future__ import annotations

import ast
import pathlib
import subprocess

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


def test_functions_fit_a_screen() -> None:
    """A function that does not fit a screen is reviewed in pieces, and its error paths not at all."""
    long = []
    for path in sources("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # The signature and the docstring are read on their own.
                body = node.body[1:] if ast.get_docstring(node) else node.body
                length = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                if length > FUNCTION_LINES_MAX:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length} lines")
    assert not long


FILE_CALLS = {"open", "read_bytes", "read_text", "write_bytes", "write_text", "unlink", "rename", "replace", "mkdir"}
# Leaves that may touch files themselves; everything else goes through runtime, where faults can be injected.
FILE_ROOMS = ("runtime", "cli")


def touches_files(call: ast.Call) -> bool:
    """Whether this is a call of open() or of a pathlib method that touches the disk."""
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in FILE_CALLS:
        return False
    receiver = ast.unparse(call.func.value)
    if call.func.attr in ("replace", "open"):  # of str, of datetime; of Files and stores
        return "path" in receiver.lower() and "files" not in receiver.lower() and call.func.attr == "open"
    return "files" not in receiver.lower() and "store" not in receiver.lower()


def test_files_are_reached_through_runtime() -> None:
    """Otherwise a full disk, a short write or a crash at that point cannot be tried, and fails first at the user's."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)[:80]}"
        for root in PYTHON_ROOTS
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root).parts[0] not in FILE_ROOMS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and touches_files(node)
    ]
    assert not found
