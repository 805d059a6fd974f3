"""Files that may change while a server runs, such as those of users; and the certificate of a listener."""

from __future__ import annotations

import logging
import ssl  # noqa: TID251 - this room is the sockets'
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from tierlog.errors import ConfigError, StoreError
from tierlog.runtime.machine.files import FileInfo, Files
from tierlog.serving.serving_config import ServingConfig

_log = logging.getLogger(__name__)

Value = TypeVar("Value")


class ReloadedFiles(Generic[Value]):
    """A value made of some files, and made again when the files have changed.

    Args:
        what: One word, for the log: ``event=<what>_changed``, ``event=<what>_kept``.
        paths: The files; the first one is named in the log.
        load: Makes the value. Raises ConfigError, StoreError: the files cannot be used.
        files: Used to notice changes.

    Attributes:
        value: From the files as they were when they were last fine.

    Raises:
        What ``load`` raises; StoreError: the files cannot be looked at.

    Thread safety: one thread at a time makes and reloads; any thread may read ``value``.
    """

    def __init__(self, what: str, paths: Sequence[str], load: Callable[[], Value], files: Files) -> None:
        self._what = what
        self._paths = tuple(paths)
        self._load = load
        self._files = files
        self._stamp = self._read_stamp()
        self.value = load()

    def reload(self) -> bool:
        """Read the files again if they have changed. Whether there is another value now.

        A fault of the new files is logged, and the value stays: a change that is half written must not take the server
        down. Reads files: not for the loop's thread.
        """
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return False
            self.value = self._load()
        except (ConfigError, StoreError) as error:
            _log.error("event=%s_kept path=%s reason=%r", self._what, self._paths[0], str(error))
            return False
        self._stamp = stamp
        _log.info("event=%s_changed path=%s", self._what, self._paths[0])
        return True

    def _read_stamp(self) -> tuple[FileInfo | None, ...]:
        return tuple(map(self._files.find, self._paths))


def open_certificate(config: ServingConfig, files: Files) -> ReloadedFiles[ssl.SSLContext]:
    """Load a certificate, its chain and its key, from PEM files, as a context of TLS 1.2 and later.

    Raises:
        ConfigError: the files are missing, malformed, or do not belong together.
    """
    paths = [path for path in (config.ssl_certificate_chain_location, config.ssl_key_location) if path]
    key = files.find(paths[-1])
    if key is not None and key.readable_by_all:
        _log.warning("event=key_readable_by_all path=%s: take that right away (chmod o-r)", key.path)
    return ReloadedFiles("certificate", paths, lambda: _load(config), files)


def refusal_text(error: OSError) -> str:
    """Return the reason of a failed handshake, in words that name the remedy."""
    reason = getattr(error, "reason", None) or ""
    text = next((told for part, told in _REASONS.items() if part in reason), "")
    if isinstance(error, ConnectionError) and not isinstance(error, ConnectionAbortedError):
        text = "the client closed the connection in the midst of the handshake"
    return f"no TLS was agreed on: {text or str(error) or type(error).__name__}"


#: Part of OpenSSL's reason -> its meaning here.
_REASONS: Final = {
    "WRONG_VERSION_NUMBER": "the client does not speak TLS (security.protocol=PLAINTEXT?)",
    "HTTP_REQUEST": "the client speaks HTTP without TLS",
    "UNKNOWN_CA": "the client does not trust who signed the certificate (ssl.ca.location, a truststore)",
    "ALERT_CERTIFICATE_EXPIRED": "the certificate has expired, or is not valid yet, by the client's clock",
    "ALERT_BAD_CERTIFICATE": "the client does not take the certificate",
    "ALERT_CERTIFICATE_UNKNOWN": "the client does not take the certificate (another host's name?)",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of TLS from 1.2 on",
    "NO_SHARED_CIPHER": "the client offers no cipher that is known here",
}


def _load(config: ServingConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    chain, key = config.ssl_certificate_chain_location, config.ssl_key_location or None
    try:
        # A callable, lest a missing password be asked of the terminal.
        context.load_cert_chain(chain, key, lambda: config.ssl_key_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(f"the certificate of {chain} cannot be used: {error}") from error
    return context
