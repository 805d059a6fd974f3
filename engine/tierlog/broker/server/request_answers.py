"""The reply to the bytes of a request, by the handler of its API."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tierlog.broker.handling import Handler, RequestCoding, RequestContext, may_read_all
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.protocol.decoding import MalformedRequestError
from tierlog.broker.protocol.requests import RequestHeader, api_name, read_header
from tierlog.broker.protocol.responses import encode_prefix, encode_response
from tierlog.broker.server.api_versions import (
    API_VERSIONS,
    LATE_SASL,
    ApiVersionsHandler,
)
from tierlog.broker.server.security.sasl_authenticator import SaslAuthenticator
from tierlog.broker.server.security.topic_access import TopicAccess
from tierlog.broker.server.server_metrics import ServerMetrics
from tierlog.errors import ConfigError
from tierlog.runtime.machine.clock import Clock
from tierlog.runtime.waiting.loops import Worker
from tierlog.serving.admission import RequestMemory
from tierlog.serving.connection import Client
from tierlog.serving.refusals import Refusals, RefusedError
from tierlog.serving.reloaded_files import ReloadedFiles
from tierlog.serving.response_writer import Reply

_log = logging.getLogger(__name__)

ANONYMOUS: Final = "User:ANONYMOUS"


@dataclass(slots=True)
class KafkaClient(Client):
    """A client of Kafka's protocol.

    Attributes:
        advertised_host, advertised_port: The address of this server in its answers.
        authenticator: Its authentication; None once it is done, or if none is required.
        principal: Its identity.
    """

    advertised_host: str
    advertised_port: int
    authenticator: SaslAuthenticator | None = None
    principal: str = ANONYMOUS

    @property
    def is_trusted(self) -> bool:
        return self.authenticator is None


async def answer_by(
    handler: Handler,
    header: RequestHeader,
    frame: memoryview,
    *,
    coding: RequestCoding,
    context: RequestContext,
    metrics: ServerMetrics,
    clock: Clock,
) -> Reply | None:
    """Return a handler's reply to a request, counted; None if the client expects none. ``coding`` is that of this
    request, and its caller's to give back.

    Raises:
        MalformedRequestError: the bytes are no such request. Else the handler's errors.
    """
    request = await coding.read(header, frame)
    api = metrics.api(header.api_key)
    api.at_work += 1
    began = clock.monotonic_seconds()
    sent_bytes = 0
    try:
        answer = await handler.handle(request, context)
        if answer is None:
            return None
        if not isinstance(answer, Reply):
            body = await coding.encode(answer)
            answer = Reply((body,), len(body))
        prefix = encode_prefix(header, answer.size_bytes)
        sent_bytes = len(prefix) + answer.size_bytes
        return Reply((prefix, *answer.buffers), sent_bytes, answer.release)
    finally:
        api.at_work -= 1
        api.count(len(frame), sent_bytes, clock.monotonic_seconds() - began)
        metrics.count_client(header.client_id, len(frame), sent_bytes)


class RequestAnswers:
    """Answers the requests of all connections.

    Args:
        handlers: Of the APIs that are served; one each.
        memory: Of all requests.
        failure_delay_seconds: How long the answer to a failed authentication is held back.

    Raises:
        ConfigError: two handlers have the same API.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        *,
        clock: Clock,
        memory: RequestMemory,
        metrics: ServerMetrics,
        refusals: Refusals,
        failure_delay_seconds: float,
    ) -> None:
        own: tuple[Handler, ...] = LATE_SASL
        self.api_versions = ApiVersionsHandler((*own, *handlers))
        self._handlers: dict[int, Handler] = {}
        for handler in (*own, *handlers, self.api_versions):
            if handler.api_key in self._handlers:
                raise ConfigError(f"{api_name(handler.api_key)} has two handlers")
            self._handlers[handler.api_key] = handler
        self._clock = clock
        self._memory = memory
        self._metrics = metrics
        self._refusals = refusals
        self._failure_delay_seconds = failure_delay_seconds
        #: Of a running server: the thread for long answers, and of one whose users may not read all topics.
        self.worker: Worker | None = None
        self.topic_access: ReloadedFiles[TopicAccess] | None = None

    def iter_versions(self) -> Iterator[tuple[int, int]]:
        """Yield (API, version) of all that is served: the newest versions of all APIs first."""
        for age in range(max(len(handler.versions) for handler in self._handlers.values())):
            for handler in self._handlers.values():
                if age < len(handler.versions):
                    yield handler.api_key, handler.versions[-1 - age]

    async def answer(self, client: KafkaClient, frame: memoryview) -> Reply | None:
        """Return the reply to a request; None if the client expects none.

        Raises:
            RefusedError: the connection is to be closed. Else a handler's unexpected errors.
        """
        try:
            return await self._answer(client, frame)
        except MalformedRequestError as error:
            raise RefusedError("malformed", str(error)) from error
        except ApiError as error:
            raise RefusedError("api_error", f"{error.code.name}: {error.text}") from error

    async def _answer(self, client: KafkaClient, frame: memoryview) -> Reply | None:
        assert self.worker is not None
        coding = RequestCoding(self._memory, self.worker, client.host)
        try:
            if client.authenticator is not None:
                return await self._authenticate(client, client.authenticator, frame, coding)
            header = read_header(frame)
            handler = self._handlers.get(header.api_key)
            if handler is None or header.api_version not in handler.versions:
                return self._answer_unsupported(header)
            context = RequestContext(
                header.api_version,
                header.client_id,
                client.principal,
                client.host,
                client.connection_id,
                client.advertised_host,
                client.advertised_port,
                may_read_all if self.topic_access is None else partial(self._may_read, client.principal),
                coding.encode,
            )
            return await answer_by(
                handler, header, frame, coding=coding, context=context, metrics=self._metrics, clock=self._clock
            )
        finally:
            coding.give_back()

    def _may_read(self, principal: str, topic: str) -> bool:
        """Whether the current file allows it: a right that is withdrawn counts for a waiting fetch, too."""
        return self.topic_access is None or self.topic_access.value.may_read(principal, topic)

    def _answer_unsupported(self, header: RequestHeader) -> Reply:
        """Answer an unsupported version as Kafka does: of ApiVersions alone, so that a newer client can ask again; the
        connection is closed for any other API.
        """
        if header.api_key == API_VERSIONS:
            response = encode_response(header, self.api_versions.answer_unsupported())
            return Reply((response,), len(response))
        raise RefusedError("unsupported", f"{api_name(header.api_key)} {header.api_version} is not served")

    async def _authenticate(
        self,
        client: KafkaClient,
        authenticator: SaslAuthenticator,
        frame: memoryview,
        coding: RequestCoding,
    ) -> Reply:
        step = await authenticator.take(frame, coding)
        buffers, size_bytes = (step.response,) if step.response else (), len(step.response)
        if step.failure is not None:
            self._metrics.count_refused("authentication")
            self._refusals.tell("authentication", client.host, step.failure)
            return Reply(buffers, size_bytes, is_last=True, delay_seconds=self._failure_delay_seconds)
        if step.principal is not None:
            client.principal, client.authenticator = step.principal, None
            line = "event=authenticated client=%s connection=%d mechanism=%s principal=%r"
            _log.info(line, client.host, client.connection_id, authenticator.mechanism, step.principal)
            self._metrics.authentications += 1
        return Reply(buffers, size_bytes)
