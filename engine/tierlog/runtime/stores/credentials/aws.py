"""Credentials for S3: one source, chosen once, for reading and writing alike.

The first source that is configured is the one: static keys, a file of keys, the environment, a web identity, a profile,
a container, and only where nothing of that is there the machine's own role. If the chosen one fails, that is an error:
another identity than the operator meant never takes its place. The exchanges with AWS are botocore's.
"""

from __future__ import annotations

import configparser
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tierlog._extras import require_extra
from tierlog.errors import ConfigError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files, read_secret_file
from tierlog.runtime.machine.properties import parse_properties

_log = logging.getLogger(__name__)

#: How long a change of a file of keys may go unnoticed.
_FILE_SECONDS: Final = 10.0
_FILE_BYTES_MAX: Final = 1 << 20
_INSTANCE_SECONDS: Final = 2.0
_INSTANCE_TRIES: Final = 2
_ROLE_NAME: Final = "tierlog"

#: Names of sources; "default" is the first that is configured.
SOURCES: Final = ("default", "environment", "profile", "web-identity", "container", "instance", "anonymous")


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """The keys that sign a request."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class AwsCredentials(ABC):
    """One source of keys. Any number of threads."""

    name: str
    """For messages; no secret."""

    @abstractmethod
    def keys(self) -> AwsKeys | None:
        """Return the keys that sign from now on; None for requests that are not signed.

        Raises:
            StorePermissionError: the source has none or is refused. StoreUnavailableError: it does not answer.
        """


class FixedCredentials(AwsCredentials):
    """Keys that do not change, or none at all."""

    def __init__(self, name: str, keys: AwsKeys | None) -> None:
        self.name = name
        self._keys = keys

    def keys(self) -> AwsKeys | None:
        return self._keys


class FileCredentials(AwsCredentials):
    """Keys in a properties file, read again when it changes.

    A file that is malformed or gone while we run leaves the last good keys in force, and says so in the log.
    """

    def __init__(self, path: str, machine: Machine) -> None:
        self.name = f"the file {path}"
        self._path = path
        self._machine = machine
        self._lock = threading.Lock()
        self._looked = machine.clock.monotonic_seconds()
        self._version = self._find_version()
        self._keys = self._read()

    def keys(self) -> AwsKeys | None:
        with self._lock:
            now = self._machine.clock.monotonic_seconds()
            if now - self._looked >= _FILE_SECONDS:
                self._looked = now
                self._refresh()
            return self._keys

    def _refresh(self) -> None:
        try:
            version = self._find_version()
            if version != self._version:
                self._keys = self._read()
                self._version = version
                _log.info("credentials read again from %s (access key %s)", self._path, self._keys.access_key_id)
        except (ConfigError, StoreError) as error:
            _log.warning("%s; the last good credentials stay in force", error)

    def _find_version(self) -> object:
        found = self._machine.files.find(self._path)
        return None if found is None else (found.identity, found.modified_ms, found.size_bytes)

    def _read(self) -> AwsKeys:
        return read_key_file(self._path, self._machine.files)


def read_key_file(path: str, files: Files, *, option: str = "the file of AWS keys") -> AwsKeys:
    """Read keys of a properties file, under ``aws.access.key.id`` and so on. With more in front of a name, as a
    broker's configuration has it, the longer name wins.

    Args:
        path: Of the file.
        files: Where it is.
        option: What names it, for messages.

    Raises:
        ConfigError: it cannot be read, or a key is missing.
    """
    try:
        text = read_secret_file(option, path, files, limit_bytes=_FILE_BYTES_MAX).decode("utf-8")
        pairs = dict(parse_properties(text))
    except ConfigError:
        raise
    except (StoreError, UnicodeDecodeError, ValueError) as cause:
        raise ConfigError(f"{option}: cannot read {path}: {type(cause).__name__}") from None
    access_key_id, secret, token = (
        _longest_named(pairs, name) for name in ("aws.access.key.id", "aws.secret.access.key", "aws.session.token")
    )
    if access_key_id is None or secret is None:
        raise ConfigError(f"{option}: {path} lacks aws.access.key.id or aws.secret.access.key")
    return AwsKeys(access_key_id, secret, token)


def _longest_named(pairs: Mapping[str, str], name: str) -> str | None:
    """Return the value of a name, or of the longest name that ends with it behind a dot; None where it is empty or
    missing.
    """
    names = [each for each in pairs if each == name or each.endswith(f".{name}")]
    return pairs[max(names, key=len)] or None if names else None


class _BotocoreCredentials(AwsCredentials):
    """A source of botocore's, which refreshes what expires. Loaded with the first request.

    Raises:
        ConfigError: botocore is not installed.
    """

    def __init__(self, name: str, load: Callable[[], Any]) -> None:
        require_extra("s3", f"AWS credentials: {name}")
        self.name = name
        self._load = load
        self._lock = threading.Lock()
        self._loaded: Any = None

    def keys(self) -> AwsKeys | None:
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # noqa: A004

        try:
            with self._lock:  # callers that come meanwhile want the same
                self._loaded = self._loaded or self._load()
            if self._loaded is None:
                raise StorePermissionError(f"AWS credentials: {self.name} gives none")
            now = self._loaded.get_frozen_credentials()
        except (ConnectionError, HTTPClientError) as error:
            raise StoreUnavailableError(f"AWS credentials: {self.name} does not answer: {error}") from None
        except (BotoCoreError, ClientError, OSError, ValueError) as error:
            if isinstance(error, StoreError):
                raise
            raise StorePermissionError(f"AWS credentials: {self.name}: {error}") from None
        return AwsKeys(now.access_key, now.secret_key, now.token)


def choose_credentials(
    config: Mapping[str, str], machine: Machine, *, source: str = "default", file: str | None = None, region: str = ""
) -> AwsCredentials:
    """Choose the configured source of keys.

    Args:
        config: Options in obstore's words; the environment sets those left open (``AWS_…``).
        machine: Its files and clock.
        source: One of SOURCES; another one than "default" is that and nothing else.
        file: A file of keys.
        region: For the exchange of a web identity; "" for the configured one.

    Raises:
        ConfigError: half of a source's options, or an unknown source.
    """
    if source not in SOURCES:
        raise ConfigError(f"unknown source of AWS credentials {source!r}; one of {', '.join(SOURCES)}")
    if file is not None:
        return FileCredentials(file, machine)
    given = S3Options(config)
    if source == "anonymous" or (given.find("skip_signature") or "").lower() in ("true", "1"):
        return FixedCredentials("nobody: requests are not signed", None)
    if given.option("access_key_id") is not None:
        return FixedCredentials("the configuration's keys", given.static(given.option))
    if source == "default":
        source = _configured_source(given, machine)
    if source == "environment":
        return FixedCredentials("the environment's keys", given.static(given.environment))
    if source == "web-identity":
        return _web_identity(given, region or given.find("region", "default_region"))
    if source == "profile":
        profile = os.environ.get("AWS_PROFILE") or "default"
        return _BotocoreCredentials(f"the profile {profile}", _profile_loader(profile))
    if source == "container":
        return _container(given)
    endpoint = given.find("metadata_endpoint") or "http://169.254.169.254"
    return _BotocoreCredentials("the role of this machine", lambda: _load_instance(endpoint))


def _configured_source(given: S3Options, machine: Machine) -> str:
    if given.environment("access_key_id") is not None or given.environment("secret_access_key") is not None:
        return "environment"
    if given.find("web_identity_token_file"):
        return "web-identity"
    files = (shared_credentials_path(), shared_config_path())
    if os.environ.get("AWS_PROFILE") or any(_has_keys(path, machine) for path in files):
        return "profile"
    container = ("container_credentials_relative_uri", "container_credentials_full_uri")
    return "container" if any(map(given.find, container)) else "instance"


#: Any of these in the default profile says that it is meant to give credentials; a region alone does not.
_PROFILE_KEYS: Final = (
    "aws_access_key_id",
    "role_arn",
    "sso_session",
    "sso_start_url",
    "credential_process",
    "login_session",
    "web_identity_token_file",
)


def _has_keys(path: str, machine: Machine) -> bool:
    """Whether the default profile of one of AWS's files gives credentials."""
    default = read_section(path, "default", machine.files)
    return any(name in default for name in _PROFILE_KEYS)


@dataclass(frozen=True, slots=True)
class S3Options:
    """Options in obstore's words, with or without ``aws_`` in front; the environment sets those left open."""

    config: Mapping[str, str] = field(repr=False)

    def find(self, *names: str) -> str | None:
        """Find the first of these names that an option sets, else the environment; None if neither does."""
        return next(
            (found for where in (self.option, self.environment) for name in names if (found := where(name))), None
        )

    def option(self, name: str) -> str | None:
        """Return the value of an option."""
        return self.config.get(name) or self.config.get(f"aws_{name}") or None

    def environment(self, name: str) -> str | None:
        """Return the value of the environment."""
        return os.environ.get(f"AWS_{name.upper()}") or None

    def endpoint(self) -> str:
        """Return the server that is named in place of Amazon's, without "/" at its end; "" if none is."""
        return (self.find("endpoint_url_s3", "endpoint_url", "endpoint") or "").rstrip("/")

    def is_set(self, name: str) -> bool:
        """Whether a boolean is true."""
        return (self.find(name) or "").lower() in ("true", "1", "yes", "on", "y", "t")

    def static(self, where: Callable[[str], str | None]) -> AwsKeys:
        """Return the keys that one of the two gives. Raises ConfigError: half of them."""
        access_key_id, secret = where("access_key_id"), where("secret_access_key")
        if access_key_id is None or secret is None:
            raise ConfigError("AWS credentials: access key id and secret access key must be given together")
        return AwsKeys(access_key_id, secret, where("session_token") or where("token"))


def _web_identity(given: S3Options, region: str | None) -> AwsCredentials:
    token_file, role = given.find("web_identity_token_file"), given.find("role_arn")
    if not token_file or not role:
        raise ConfigError("AWS credentials: a web identity needs web_identity_token_file and role_arn")
    session_name = given.find("role_session_name") or _ROLE_NAME
    profile = {"web_identity_token_file": token_file, "role_arn": role, "role_session_name": session_name}
    endpoint = given.option("sts_endpoint")

    def load() -> Any:
        from botocore.credentials import AssumeRoleWithWebIdentityProvider
        from botocore.session import Session

        def client(service: str, **options: Any) -> Any:
            return Session().create_client(service, region_name=region, endpoint_url=endpoint, **options)

        return AssumeRoleWithWebIdentityProvider(
            load_config=lambda: {"profiles": {_ROLE_NAME: profile}},
            client_creator=client,
            profile_name=_ROLE_NAME,
            cache={},
            disable_env_vars=True,
        ).load()

    return _BotocoreCredentials(f"the web identity in {token_file} for {role}", load)


def _profile_loader(profile: str) -> Callable[[], Any]:
    def load() -> Any:
        from botocore.session import Session

        session = Session(profile=profile)
        resolver = session.get_component("credential_provider")
        others = ("env", "container-role", "iam-role", "ec2-credentials-file", "boto-config")
        resolver.providers = [each for each in resolver.providers if each.METHOD not in others]
        return resolver.load_credentials()

    return load


def _container(given: S3Options) -> AwsCredentials:
    names = (
        "container_credentials_relative_uri",
        "container_credentials_full_uri",
        "container_authorization_token",
        "container_authorization_token_file",
    )
    environment = {f"AWS_{name.upper()}": found for name in names if (found := given.find(name))}
    if not any("CREDENTIALS" in name for name in environment):
        raise ConfigError("AWS credentials: no container gives any (AWS_CONTAINER_CREDENTIALS_… is not set)")

    def load() -> Any:
        from botocore.credentials import ContainerProvider

        return ContainerProvider(environ=environment).load()

    return _BotocoreCredentials("the role of this container", load)


def _load_instance(endpoint: str) -> Any:
    from botocore.credentials import InstanceMetadataProvider
    from botocore.utils import InstanceMetadataFetcher

    fetcher = InstanceMetadataFetcher(timeout=_INSTANCE_SECONDS, num_attempts=_INSTANCE_TRIES, base_url=endpoint)
    return InstanceMetadataProvider(iam_role_fetcher=fetcher).load()


def shared_config_path() -> str:
    """Return the path of the file with the profiles."""
    return os.environ.get("AWS_CONFIG_FILE") or os.path.expanduser("~/.aws/config")


def shared_credentials_path() -> str:
    """Return the path of the file with the profiles' keys."""
    return os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")


def read_section(path: str, section: str, files: Files) -> Mapping[str, str]:
    """Read the names and values of a section; none where the file, or the section, is not there.

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
