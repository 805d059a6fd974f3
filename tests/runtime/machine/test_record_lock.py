"""Locks that Java sees, against another process that locks as Java does."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

from tierlog.runtime.machine.posix_files import PosixFiles

#: Takes the lock as the JVM does (F_SETLK over the whole file), says whether it has it, and holds it until told to end.
_AS_JAVA = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("locked", flush=True)
except OSError:
    print("held", flush=True)
sys.stdin.read()
"""
_JAVA = """
import java.io.RandomAccessFile;

class TakesLock {
    public static void main(String[] args) throws Exception {
        try (var file = new RandomAccessFile(args[0], "rw")) {
            System.out.println(file.getChannel().tryLock() == null ? "held" : "locked");
            System.out.flush();
            System.in.readAllBytes();
        }
    }
}
"""


def check_against(command: list[str], path: pathlib.Path) -> None:
    files = PosixFiles()
    mine = files.try_record_lock(str(path))
    assert mine is not None
    assert subprocess.run([*command, str(path)], input=b"", capture_output=True, check=True).stdout == b"held\n"
    mine.release()
    with subprocess.Popen([*command, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as theirs:
        assert theirs.stdin is not None
        assert theirs.stdout is not None
        assert theirs.stdout.readline() == b"locked\n"
        assert files.try_record_lock(str(path)) is None
        theirs.stdin.close()
        theirs.wait(60)
    again = files.try_record_lock(str(path))
    assert again is not None
    again.release()


def test_a_lock_of_java_and_ours_keep_each_other_out(tmp_path: pathlib.Path) -> None:
    """If this fails, a broker and an embedder, or `tierlog recover`, change one log directory at the same time."""
    check_against([sys.executable, "-c", _AS_JAVA], tmp_path / ".lock")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="no java")
def test_java_itself(tmp_path: pathlib.Path) -> None:
    """If this fails, Java locks in another way than the test before this one believes."""
    source = tmp_path / "TakesLock.java"
    source.write_text(_JAVA)
    check_against(["java", "-XX:TieredStopAtLevel=1", str(source)], tmp_path / ".lock")
