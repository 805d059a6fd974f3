"""The stubs of the native modules are their reference: they may not drift from what was compiled."""

from __future__ import annotations

import pytest

from tests.support.checkout import needs_checkout, run_tool

MODULES = ["appends", "batches", "checksums", "chunks", "codecs", "decoding", "indexes", "segments", "status"]


@needs_checkout
def test_stubs_say_what_the_native_modules_hold() -> None:
    """A stub that drifts lets mypy pass a call that fails at run time."""
    modules = [f"tierlog._native.{name}" for name in MODULES]
    settings = ["--mypy-config-file", "pyproject.toml", "--allowlist", "tests/stubtest_allowlist.txt"]
    run_tool("stubtest", *modules, *settings, "--ignore-unused-allowlist", "--ignore-disjoint-bases")


@pytest.mark.parametrize("name", MODULES)
def test_every_native_module_is_built(name: str) -> None:
    """A module left out of the build is noticed here, not in a user's first read."""
    module = __import__(f"tierlog._native.{name}", fromlist=["__file__"])
    assert module.__file__.endswith(".so")
