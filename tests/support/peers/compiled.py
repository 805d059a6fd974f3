"""Sides that are compiled for a run: a C program over the core, a Java class in the package of what it calls."""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess

from tests.support.peers import install


def java_class_path(source: pathlib.Path, folder: pathlib.Path) -> str:
    """Compile a source into a folder; the class path with Kafka's jars. Compiled, not run from its source:
    only so it is in the package of what it calls.
    """
    path = install.class_path("kafka")
    javac = pathlib.Path(install.java()).with_name("javac") if os.environ.get("JAVA_HOME") else "javac"
    subprocess.run([str(javac), "-cp", path, "-d", str(folder), str(source)], check=True)
    return f"{folder}:{path}"


def c_program(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Compile a program over the core, which is built first."""
    build, made = install.ROOT / "build" / "core", folder / source.stem
    subprocess.run(["cmake", "-S", str(install.ROOT), "-B", str(build)], check=True, stdout=subprocess.DEVNULL)
    target = ["--target", "tierlog_core_static"]
    subprocess.run(["cmake", "--build", str(build), *target], check=True, stdout=subprocess.DEVNULL)
    libraries = subprocess.run(
        ["pkg-config", "--libs", "libzstd", "liblz4", "snappy", "libdeflate"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-O3", "-std=c11", f"-I{install.ROOT / 'cext' / 'core' / 'include'}"]
    archive = str(build / "libtierlog_core.a")
    subprocess.run([*compiler, *flags, str(source), archive, *libraries, "-lpthread", "-o", str(made)], check=True)
    return made
