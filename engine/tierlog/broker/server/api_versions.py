"""The APIs about the connection itself: which APIs there are, and SASL where it is over or not asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.static.protocol import ResponsePayload

from tierlog.broker.handling import Answer, Handler, RequestContext
from tierlog.broker.protocol.entities import entities_of, field_of

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36

#: Allowed names of a client's software, as Kafka's ApiVersionsRequest demands.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """ApiVersions: the ranges of all handlers.

    No features are sent: neither supported nor finalized ones, as of a Kafka cluster that has none (their epoch is -1).

    Args:
        handlers: Of the other APIs.
    """

    api_key: ClassVar[int] = API_VERSIONS
    versions: ClassVar[range] = range(5)

    def __init__(self, handlers: Iterable[Handler]) -> None:
        self._ranges = {handler.api_key: handler.versions for handler in (*handlers, self)}
        self._lists = {
            version: self._response(version, ErrorCode.none, sorted(self._ranges)) for version in self.versions
        }

    def has(self, api_key: int, version: int) -> bool:
        """Whether a version of an API is served."""
        return version in self._ranges.get(api_key, ())

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """List the APIs."""
        return self.answer(request, context.api_version)

    def answer(self, request: Any, version: int) -> ResponsePayload:
        """Answer the list; INVALID_REQUEST for a client whose software has no name that Kafka allows."""
        if version >= 3:
            names = (field_of(request, "client_software_name"), field_of(request, "client_software_version"))
            if not all(_SOFTWARE.fullmatch(name) for name in names):
                return self.answer_error(version, ErrorCode.invalid_request)
        return self._lists[version]

    def answer_unsupported(self) -> ResponsePayload:
        """Make the answer to an unsupported version: version 0, with the range of this API, so that the client can ask
        again.
        """
        return self._response(0, ErrorCode.unsupported_version, (API_VERSIONS,))

    def answer_error(self, version: int, error_code: ErrorCode) -> ResponsePayload:
        """Make an answer that names no API."""
        return self._response(version, error_code, ())

    def _response(self, version: int, error_code: ErrorCode, api_keys: Iterable[int]) -> ResponsePayload:
        entities = entities_of(API_VERSIONS, version)
        ranges = tuple(
            entities.make(
                "ApiVersion",
                api_key=key,
                min_version=self._ranges[key].start,
                max_version=self._ranges[key].stop - 1,
            )
            for key in api_keys
        )
        return entities.response(error_code=error_code, api_keys=ranges)


@dataclass(frozen=True, slots=True)
class LateSaslHandler:
    """An API of SASL for a client that is through with it, or on a listener without it: refused, as Kafka does."""

    api_key: int
    versions: range

    async def handle(self, request: Any, context: RequestContext) -> Answer:  # noqa: ARG002
        """Refuse the request."""
        return entities_of(self.api_key, context.api_version).response(
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
            mechanisms=(),
        )


LATE_SASL: Final = (LateSaslHandler(SASL_HANDSHAKE, range(2)), LateSaslHandler(SASL_AUTHENTICATE, range(3)))
