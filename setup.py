"""Builds the native core and the thin Cython modules over it; everything else is in ``pyproject.toml``.

The C sources are those of ``cext/core/sources.txt``, the same list that CMake reads. Libraries are found by pkg-config;
a missing one stops the build with the name of the package that carries it.

Environment:
    TIERLOG_WERROR=1   warnings are errors (our CI)
    TIERLOG_DEBUG=1    bounds checks, asserts, UBSan, no optimisation
    TIERLOG_STATIC=1   link the codecs statically (for manylinux wheels)
    TIERLOG_ANNOTATE=1 write Cython's HTML annotation beside each module
    TIERLOG_JAR=FILE   put this Spark jar into the wheel; "build": build it as `make jar` does, and fail where it cannot
    TIERLOG_KAFKA_JAR  the same for the jar of Kafka brokers (`make kafka-jar`)
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

ROOT = pathlib.Path(__file__).resolve().parent
CORE = pathlib.Path("cext/core")
SOURCES = [str(CORE / line) for line in (ROOT / CORE / "sources.txt").read_text().split()]
HEADERS = [str(p.relative_to(ROOT)) for p in sorted((ROOT / CORE).rglob("*.h"))]
MODULES = [
    "appends",
    "batches",
    "buffers",
    "checksums",
    "chunks",
    "codecs",
    "compaction",
    "decoding",
    "files",
    "indexes",
    "segments",
    "skimming",
    "status",
]
PACKAGES = {  # pkg-config name -> Debian package
    "libzstd": "libzstd-dev",
    "liblz4": "liblz4-dev",
    "snappy": "libsnappy-dev",
    "libdeflate": "libdeflate-dev",
}
JARS = {  # variable of the environment -> the jar in its package, and what builds it
    "TIERLOG_JAR": (ROOT / "bindings" / "spark" / "pyspark_tierlog" / "jars" / "tierlog-spark.jar", "build-jar.sh"),
    "TIERLOG_KAFKA_JAR": (ROOT / "engine" / "tierlog" / "sidecar" / "jars" / "tierlog-kafka.jar", "build-kafka-jar.sh"),
}
DEBUG = os.environ.get("TIERLOG_DEBUG") == "1"
STATIC = os.environ.get("TIERLOG_STATIC") == "1"
SANITIZE = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]


def pkg_config(*arguments: str) -> list[str]:
    """What pkg-config answers for all the codecs at once; a clear end of the build where one is missing."""
    for name, package in PACKAGES.items():
        try:
            found = subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0
        except FileNotFoundError:
            sys.exit("tierlog: pkg-config is needed to build; on Debian: apt-get install pkg-config")
        if not found:
            sys.exit(f"tierlog: the library {name} is needed to build; on Debian: apt-get install {package}")
    done = subprocess.run(["pkg-config", *arguments, *PACKAGES], check=True, capture_output=True, text=True)
    return done.stdout.split()


def compile_flags() -> list[str]:
    flags = ["-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden", *pkg_config("--cflags")]
    flags += ["-O0", "-g", "-UNDEBUG", *SANITIZE] if DEBUG else ["-O3", "-g1", "-DNDEBUG"]
    return flags


def link_flags() -> list[str]:
    # Names of archives stay inside the module: no clash with another copy of a codec in the process. It is also what
    # lets Debian's static snappy into a shared object at all: it is compiled for programs (-fPIE).
    flags = ["-Wl,--exclude-libs,ALL", *(SANITIZE if DEBUG else [])]
    if not STATIC:
        return [*flags, *pkg_config("--libs")]
    libraries = [f"-l:lib{name}.a" for name in ("zstd", "lz4", "snappy", "deflate")]
    paths = [flag for flag in pkg_config("--static", "--libs") if flag.startswith("-L")]
    return [*flags, *paths, *libraries, "-lstdc++", "-lm", "-lpthread"]


class BuildExt(build_ext):
    """Compiles the core once into a static archive and links it into every module."""

    def build_extensions(self) -> None:
        temp = pathlib.Path(self.build_temp)
        strict = ["-Wconversion"] + (["-Werror"] if os.environ.get("TIERLOG_WERROR") == "1" else [])
        objects = self.compiler.compile(
            SOURCES,
            output_dir=str(temp),
            include_dirs=[str(CORE / "include"), str(CORE)],
            extra_postargs=[*compile_flags(), *strict],
            depends=HEADERS,
        )
        archive = str(temp / "libtierlog_core.a")
        pathlib.Path(archive).unlink(missing_ok=True)
        self.compiler.create_static_lib(objects, "tierlog_core", output_dir=str(temp))
        for extension in self.extensions:
            extension.extra_objects.append(archive)
            extension.depends.append(archive)
        super().build_extensions()


class BuildPy(build_py):
    """Brings the jars into their packages before data files are looked for.

    A jar that lies in its package goes in as it is. A wheel that pip builds from the sdist has none unless TIERLOG_JAR
    or TIERLOG_KAFKA_JAR says so: pip builds on machines that have no Maven, and must not fetch the world there.
    """

    def run(self) -> None:
        for variable, (jar, builder) in JARS.items():
            wanted = os.environ.get(variable)
            if wanted == "build":
                subprocess.run([str(ROOT / ".ci" / builder)], check=True)
            elif wanted:
                jar.parent.mkdir(exist_ok=True)
                shutil.copyfile(wanted, jar)
        self.__dict__.pop("data_files", None)  # found anew when asked for
        super().run()


class EditableWheel(editable_wheel):
    """Editable installs that put the two source roots on the path.

    With two roots setuptools would install a finder instead. Spark looks data sources up with ``pkgutil.iter_modules``,
    which asks no finder, so it would not see ``pyspark_tierlog``.
    """

    def _select_strategy(self, name: str, tag: str, build_lib: str) -> object:
        try:
            from setuptools.command.editable_wheel import _StaticPth
        except ImportError:  # setuptools promises nothing here; all but the look-up by Spark works with its own way
            return super()._select_strategy(name, tag, build_lib)
        return _StaticPth(self.distribution, name, [ROOT / "engine", ROOT / "bindings" / "spark"])


def extensions() -> list[Extension]:
    modules = [
        Extension(
            f"tierlog._native.{name}",
            [f"cext/{name}.pyx"],
            include_dirs=[str(CORE / "include"), str(CORE), "cext"],
            extra_compile_args=[*compile_flags(), "-Wno-unused-function"],
            extra_link_args=link_flags(),
            depends=[*HEADERS, *[str(p) for p in pathlib.Path("cext").glob("*.px[di]")]],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        )
        for name in MODULES
        if (ROOT / "cext" / f"{name}.pyx").exists()
    ]
    return cythonize(
        modules,
        # Bounds checks are in the C that Cython writes, and Cython looks at times only: one folder would mix the two.
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        include_path=["cext"],
        annotate=os.environ.get("TIERLOG_ANNOTATE") == "1",
        compiler_directives={
            "language_level": 3,
            "embedsignature": True,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "freethreading_compatible": True,
        },
    )


if __name__ == "__main__":
    setup(
        ext_modules=extensions(), cmdclass={"build_ext": BuildExt, "build_py": BuildPy, "editable_wheel": EditableWheel}
    )
