"""The files of AWS's own tools, ``~/.aws/config`` and ``~/.aws/credentials``: where they are, and what a section says.

What profiles, roles and logins in them mean is botocore's to know.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from typing import Final

from tierlog.errors import ConfigError, StoreError
from tierlog.runtime.machine.files import Files

_FILE_BYTES_MAX: Final = 1 << 20


def shared_config_path() -> str:
    """Where profiles are configured."""
    return os.environ.get("AWS_CONFIG_FILE") or os.path.expanduser("~/.aws/config")


def shared_credentials_path() -> str:
    """Where profiles have their keys."""
    return os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")


def read_section(path: str, section: str, files: Files) -> Mapping[str, str]:
    """The names and values of a section; none where the file, or the section, is not there.

    Raises:
        ConfigError: the file cannot be read, or has another form.
    """
    if files.find(path) is None:
        return {}
    parser = configparser.ConfigParser(interpolation=None, strict=False, default_section="none of AWS's")
    try:
        parser.read_string(files.read_whole(path, limit_bytes=_FILE_BYTES_MAX).decode("utf-8"))
    except (configparser.Error, StoreError, UnicodeDecodeError) as cause:
        raise ConfigError(f"{path}: not in the form of AWS's configuration files: {type(cause).__name__}") from None
    return dict(parser[section]) if parser.has_section(section) else {}
