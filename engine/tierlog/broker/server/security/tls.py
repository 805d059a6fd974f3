"""The certificate of a listener."""

from __future__ import annotations

import logging
import ssl  # noqa: TID251 - this room is the sockets'
from typing import Final

from tierlog.broker.server.security.reloaded_files import ReloadedFiles
from tierlog.broker.server.server_config import ServerConfig
from tierlog.errors import ConfigError
from tierlog.runtime.machine.files import Files

_log = logging.getLogger(__name__)


def open_certificate(config: ServerConfig, files: Files) -> ReloadedFiles[ssl.SSLContext]:
    """A certificate, its chain and its key, from PEM files, as a context of TLS 1.2 and later.

    Raises:
        ConfigError: the files are missing, malformed, or do not belong together.
    """
    paths = [path for path in (config.ssl_certificate_chain_location, config.ssl_key_location) if path]
    key = files.find(paths[-1])
    if key is not None and key.readable_by_all:
        _log.warning("event=key_readable_by_all path=%s: take that right away (chmod o-r)", key.path)
    return ReloadedFiles("certificate", paths, lambda: _load(config), files)


def refusal_text(error: OSError) -> str:
    """Why a client's handshake failed, in words that say what to change."""
    reason = getattr(error, "reason", None) or ""
    text = next((told for part, told in _REASONS.items() if part in reason), "")
    if isinstance(error, ConnectionError) and not isinstance(error, ConnectionAbortedError):
        text = "the client closed the connection in the midst of the handshake"
    return f"no TLS was agreed on: {text or str(error) or type(error).__name__}"


#: Part of OpenSSL's reason -> what it means here.
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


def _load(config: ServerConfig) -> ssl.SSLContext:
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
