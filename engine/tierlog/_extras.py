"""Optional packages: imported where they are used, and asked for by the name of the extra that installs them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

from tierlog.errors import ConfigError

#: Import names of the packages that an extra brings.
EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "s3": ("aiohttp", "botocore"),
    "gcs": ("aiohttp", "google.auth", "urllib3"),
    "azure": ("aiohttp",),
    "encryption": ("cryptography", "Crypto"),
    "spark": ("pyspark", "pandas"),
    "kafka": ("confluent_kafka",),
    "server": ("kio", "scramp", "uvloop"),
    "sidecar": ("uvloop",),
}


def require_extra(extra: str, purpose: str) -> None:
    """Raise if a package of an extra is missing. Called where the purpose is known and nothing has begun yet: an import
    that fails later can name neither the extra nor the purpose.

    Raises:
        ConfigError: one of its packages is missing; one line that says what to install.
    """
    if any(not is_there(name) for name in EXTRAS[extra]):
        raise missing_extra(extra, purpose)


def missing_extra(extra: str, purpose: str) -> ConfigError:
    """Make the error that names the extra to install, as ``writing to S3 needs more: pip install 'tierlog[s3]'``."""
    return ConfigError(f"{purpose} needs packages that are not installed: pip install 'tierlog[{extra}]'")


def is_there(name: str) -> bool:
    """Whether a module could be imported. Nothing is imported to find out."""
    if name in sys.modules:
        return sys.modules[name] is not None
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False
