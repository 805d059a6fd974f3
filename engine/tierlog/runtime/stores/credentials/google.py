"""Credentials for Google Cloud Storage: one source of tokens, for reading and writing alike.

A token, a service account or the application default credentials of google-auth: the variable, gcloud's file, the
machine's service account, in this order.
"""

from __future__ import annotations

import datetime
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tierlog._extras import is_there, require_extra
from tierlog.errors import ConfigError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine.files import Files

if TYPE_CHECKING:
    from obstore.store import GCSCredential

_SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
_KEY_BYTES_MAX: Final = 1 << 20
_EARLY: Final = datetime.timedelta(seconds=240)


class GoogleTokens(ABC):
    """One source of tokens. Any number of threads."""

    @abstractmethod
    def identity(self) -> str:
        """Return the owner of the tokens; never a secret. May ask the source."""

    @abstractmethod
    def token(self) -> str | None:
        """Return the token that signs from now on; None for requests that are not signed.

        Raises:
            StorePermissionError: refused. StoreUnavailableError: no answer.
        """


class FixedToken(GoogleTokens):
    """A token of the configuration, or none."""

    def __init__(self, name: str, token: str | None) -> None:
        self._name = name
        self._token = token

    def identity(self) -> str:
        return self._name

    def token(self) -> str | None:
        return self._token


class GoogleAuthTokens(GoogleTokens):
    """google-auth's credentials, renewed when they end.

    Args:
        name: Of the source.
        load: Gives the credentials; may ask the machine's metadata server.
    """

    def __init__(self, name: str, load: Callable[[], Any]) -> None:
        self._name = name
        self._load = load
        self._lock = threading.Lock()
        self._credentials: Any = None

    def identity(self) -> str:
        self.token()
        email = getattr(self._credentials, "service_account_email", None)
        return f"{self._name} ({email})" if email else self._name

    def token(self) -> str | None:
        return self.token_until()[0]

    def token_until(self) -> tuple[str, datetime.datetime | None]:
        """Return the token, and when it ends.

        Raises:
            ConfigError: google-auth is not installed, which reading can do without.
        """
        require_extra("gcs", f"Google credentials: {self._name}")
        import urllib3
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.auth.transport.urllib3 import Request

        try:
            with self._lock:  # callers that come meanwhile want the same
                self._credentials = self._credentials or self._load()
                if not self._credentials.valid:
                    self._credentials.refresh(Request(urllib3.PoolManager()))  # type: ignore[no-untyped-call]
                ends = self._credentials.expiry
                return str(self._credentials.token), ends and ends.replace(tzinfo=datetime.UTC) - _EARLY
        except TransportError as error:
            raise StoreUnavailableError(f"Google credentials: {self._name} does not answer: {error}") from None
        except (GoogleAuthError, OSError, ValueError) as error:
            if isinstance(error, StoreError):
                raise
            raise StorePermissionError(f"Google credentials: {self._name}: {error}") from None


def choose_google_tokens(config: Mapping[str, str], files: Files) -> GoogleTokens:
    """Choose the one source of tokens that is configured, by options in obstore's words.

    Raises:
        ConfigError: a key file that is none.
    """

    def find(*names: str) -> str | None:
        return next((found for name in names if (found := config.get(name) or config.get(f"google_{name}"))), None)

    if (find("skip_signature") or "").lower() in ("true", "1"):
        return FixedToken("nobody: requests are not signed", None)
    if (token := find("bearer_token")) is not None:
        return FixedToken("the configuration's token", token)
    key = find("service_account_key") or os.environ.get("GOOGLE_SERVICE_ACCOUNT_KEY")
    path = find("service_account", "service_account_path", "application_credentials")
    if key is None and path is not None:
        key = _read(path, files)
    if key is not None:
        return GoogleAuthTokens("the service account of the configuration", _service_account(key))
    return GoogleAuthTokens("the application default credentials", _load_default)


def _read(path: str, files: Files) -> str:
    try:
        return files.read_whole(path, limit_bytes=_KEY_BYTES_MAX).decode("utf-8")
    except (StoreError, UnicodeDecodeError) as cause:
        raise ConfigError(f"Google credentials: cannot read {path}: {type(cause).__name__}") from None


def _service_account(key: str) -> Callable[[], Any]:
    try:
        parsed = json.loads(key)
    except ValueError:
        raise ConfigError("Google credentials: not JSON") from None  # the cause would quote them

    def load() -> Any:
        import google.auth

        found, _ = google.auth.load_credentials_from_dict(parsed, scopes=_SCOPES)  # type: ignore[no-untyped-call]
        return found

    return load


def _load_default() -> Any:
    import google.auth

    return google.auth.default(scopes=_SCOPES)[0]


def credential_provider(tokens: GoogleTokens) -> Callable[[], GCSCredential] | None:
    """Return the source in the form that obstore asks; None where obstore finds the same by itself, or must."""
    if not isinstance(tokens, GoogleAuthTokens) or not is_there("google.auth"):
        return None

    def give() -> GCSCredential:
        token, ends = tokens.token_until()
        return {"token": token, "expires_at": ends}

    return give
