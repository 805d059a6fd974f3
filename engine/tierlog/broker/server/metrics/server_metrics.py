"""The series of a server. Counting is adding to numbers, on the loop's thread; series are made of them for a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from tierlog.broker.protocol.requests import api_name
from tierlog.broker.seconds_histogram import SecondsHistogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

PREFIX: Final = "tierlog_server_"
#: Why clients are refused; each has its series from the start.
REFUSALS: Final = (
    *("frame_size", "malformed", "unsupported", "api_error", "fault", "authentication", "tls"),
    *("connections_per_ip", "descriptors", "idle", "request_deadline", "response_deadline", "authentication_deadline"),
)
#: Client ids with series of their own: the first that come. All others count together.
CLIENTS_MAX: Final = 100
OTHER_CLIENTS: Final = "other"
_CLIENT_ID_MAX: Final = 100


@dataclass(slots=True)
class ApiCounts:
    """What was asked of one API."""

    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    at_work: int = 0
    seconds: SecondsHistogram = field(default_factory=SecondsHistogram)

    def count(self, request_bytes: int, response_bytes: int, seconds: float) -> None:
        """Count a request that is over: its size, that of its response, and how long its handler took."""
        self.requests += 1
        self.request_bytes += request_bytes
        self.response_bytes += response_bytes
        self.seconds.observe(seconds)


@dataclass(slots=True)
class _ClientCounts:
    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0


class ServerMetrics:
    """What a server counts.

    Args:
        registry: Where the series are collected; each server needs one of its own. None makes one.

    Attributes:
        connections, requests_waiting: Asked for what is open, and what waits for its turn, when it is collected.
        received_bytes, sent_bytes: Of requests and responses, without TLS.

    Thread safety: counted on the loop's thread; any thread may collect.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry

        self.registry = registry or CollectorRegistry()
        self.connections: Callable[[], int] = lambda: 0
        self.connections_accepted = 0
        self.authentications = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.requests_waiting: Callable[[], int] = lambda: 0
        self.lag = SecondsHistogram()
        self.lag_seconds_max = 0.0
        self._refused = dict.fromkeys(REFUSALS, 0)
        self._apis: dict[int, ApiCounts] = {}
        self._clients: dict[str, _ClientCounts] = {OTHER_CLIENTS: _ClientCounts()}
        self.registry.register(cast("Collector", self))

    def api(self, api_key: int) -> ApiCounts:
        """The counts of an API that is served."""
        found = self._apis.get(api_key)
        if found is None:
            found = self._apis[api_key] = ApiCounts()
        return found

    def count_refused(self, kind: str) -> None:
        """Count a client that was refused: one of REFUSALS."""
        self._refused[kind] += 1

    def refused(self, kind: str) -> int:
        """How many clients were refused for a reason. Raises KeyError: not one of REFUSALS."""
        return self._refused[kind]

    def count_client(self, client_id: str, request_bytes: int, response_bytes: int) -> None:
        """Count a request by who sent it."""
        found = self._clients.get(client_id)
        if found is None:
            has_room = len(self._clients) <= CLIENTS_MAX and len(client_id) <= _CLIENT_ID_MAX
            found = self._clients.setdefault(client_id if has_room else OTHER_CLIENTS, _ClientCounts())
        found.requests += 1
        found.request_bytes += request_bytes
        found.response_bytes += response_bytes

    def observe_lag(self, seconds: float) -> None:
        """Count how late the loop was."""
        self.lag.observe(seconds)
        self.lag_seconds_max = max(self.lag_seconds_max, seconds)

    def collect(self) -> Iterable[Metric]:
        """The samples, as a Collector of prometheus_client gives them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for name, text, value in (
            ("connections", "Connections that are open.", self.connections()),
            ("requests_waiting", "Requests that wait for their turn.", self.requests_waiting()),
            (
                "loop_lag_seconds_max",
                "The latest that the event loop was since the server started.",
                self.lag_seconds_max,
            ),
        ):
            yield GaugeMetricFamily(PREFIX + name, text, value=value)
        for name, text, value in (
            ("connections_accepted", "Connections that were accepted.", self.connections_accepted),
            ("authentications", "Clients that proved who they are.", self.authentications),
            ("received_bytes", "Bytes of requests.", self.received_bytes),
            ("sent_bytes", "Bytes of responses.", self.sent_bytes),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value=value)
        refused = CounterMetricFamily(PREFIX + "refused", "Clients that were refused or cut off.", labels=["reason"])
        for kind, count in self._refused.items():
            refused.add_metric([kind], count)
        yield refused
        lag = HistogramMetricFamily(PREFIX + "loop_lag_seconds", "How late the event loop was, looked at each 100 ms.")
        lag.add_metric([], self.lag.buckets(), self.lag.sum_seconds)
        yield lag
        yield from self._api_series()
        yield from self._client_series()

    def _api_series(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily(PREFIX + "requests", "Requests, by API.", labels=["api"])
        request_bytes = CounterMetricFamily(PREFIX + "request_bytes", "Bytes of requests, by API.", labels=["api"])
        response_bytes = CounterMetricFamily(PREFIX + "response_bytes", "Bytes of responses, by API.", labels=["api"])
        at_work = GaugeMetricFamily(PREFIX + "requests_at_work", "Requests that are worked on, by API.", labels=["api"])
        text = "From the beginning of the work on a request to its answer, waiting for data included."
        seconds = HistogramMetricFamily(PREFIX + "handler_seconds", text, labels=["api"])
        for api_key, counts in list(self._apis.items()):
            labels = [_label(api_key)]
            requests.add_metric(labels, counts.requests)
            request_bytes.add_metric(labels, counts.request_bytes)
            response_bytes.add_metric(labels, counts.response_bytes)
            at_work.add_metric(labels, counts.at_work)
            seconds.add_metric(labels, counts.seconds.buckets(), counts.seconds.sum_seconds)
        return (requests, request_bytes, response_bytes, at_work, seconds)

    def _client_series(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily

        labels = ["client_id"]
        text = f"by client id: the first {CLIENTS_MAX} that came, and all others together."
        requests = CounterMetricFamily(PREFIX + "client_requests", f"Requests, {text}", labels=labels)
        request_bytes = CounterMetricFamily(PREFIX + "client_request_bytes", f"Their bytes, {text}", labels=labels)
        response_bytes = CounterMetricFamily(
            PREFIX + "client_response_bytes", f"Bytes of their responses, {text}", labels=labels
        )
        for client_id, counts in list(self._clients.items()):
            requests.add_metric([client_id], counts.requests)
            request_bytes.add_metric([client_id], counts.request_bytes)
            response_bytes.add_metric([client_id], counts.response_bytes)
        return (requests, request_bytes, response_bytes)


@cache
def _label(api_key: int) -> str:
    return api_name(api_key)
