"""Names of a package that are loaded when they are first used, so that its import is cheap and needs no extra."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(
    package: str, names: Mapping[str, tuple[str, ...]], *, modules: tuple[str, ...] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its ``__name__``.
        names: Module → public names that it defines.
        modules: Submodules that are attributes of the package before they are imported.

    ``dir`` of the package lists its ``__all__``, and no name that it has by chance.
    """

    module_of = {name: module for module, defined in names.items() for name in defined}

    def find(name: str) -> object:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        found = vars(sys.modules[package])
        return sorted({*found["__all__"], *(name for name in found if name.startswith("__"))})

    return find, listed
