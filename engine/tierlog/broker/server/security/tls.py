"""The certificate of a listener, which can change while it listens."""

from __future__ import annotations

import logging
import ssl  # noqa: TID251 - this room is the sockets'
from typing import Final

from tierlog.broker.server.server_config import ServerConfig
from tierlog.errors import ConfigError, StoreError
from tierlog.runtime.machine.files import FileInfo, Files

_log = logging.getLogger(__name__)


class TlsCertificate:
    """A certificate, its chain and its key, from PEM files, as a context of TLS 1.2 and later.

    Args:
        config: Names the files.
        files: Tells when they change.

    Attributes:
        context: For connections from now on; another one once a changed certificate was read.

    Raises:
        ConfigError: the files are missing, malformed, or do not belong together.

    Thread safety: one thread loads; any thread may read ``context``.
    """

    def __init__(self, config: ServerConfig, files: Files) -> None:
        self._config = config
        self._files = files
        self._paths: Final = tuple(
            path for path in (config.ssl_certificate_chain_location, config.ssl_key_location) if path
        )
        key = files.find(self._paths[-1])
        if key is not None and key.readable_by_all:
            _log.warning("event=key_readable_by_all path=%s: take that right away (chmod o-r)", key.path)
        self._stamp = self._read_stamp()
        self.context = self._load()

    def reload(self) -> bool:
        """Read the files again if they have changed. Whether there is another certificate now.

        What is wrong with new files is logged, and the certificate stays: a renewal that is half written must not take
        the server down. Reads files: not for the loop's thread.
        """
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return False
            self.context = self._load()
        except (ConfigError, StoreError) as error:
            _log.error("event=certificate_kept reason=%r", str(error))
            return False
        self._stamp = stamp
        _log.info("event=certificate_changed path=%s", self._paths[0])
        return True

    def _read_stamp(self) -> tuple[FileInfo | None, ...]:
        return tuple(map(self._files.find, self._paths))

    def _load(self) -> ssl.SSLContext:
        config = self._config
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
