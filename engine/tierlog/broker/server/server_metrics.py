"""The series of a server. Counting is adding to numbers, on the loop's thread; series are made of them for a scrape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from tierlog.broker.protocol.requests import api_name
from tierlog.serving.metrics import REFUSALS as SERVING_REFUSALS
from tierlog.serving.metrics import SecondsHistogram, ServingMetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

#: Kinds of refusals, beside those of a server of frames.
REFUSALS: Final = (*SERVING_REFUSALS, "malformed", "unsupported", "api_error", "authentication", "upstream")
#: Client ids with series of their own: the first that come. All others count together.
CLIENTS_MAX: Final = 100
OTHER_CLIENTS: Final = "other"
_CLIENT_ID_MAX: Final = 100


@dataclass(slots=True)
class ApiCounts:
    """The counters of one API."""

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


class ServerMetrics(ServingMetrics):
    """The metrics of a server of Kafka's protocol.

    Args:
        registry: Where the series are collected; each server needs one of its own. None makes one.

    Thread safety: counted on the loop's thread; any thread may collect.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.authentications = 0
        self._apis: dict[int, ApiCounts] = {}
        self._clients: dict[str, _ClientCounts] = {OTHER_CLIENTS: _ClientCounts()}
        super().__init__("tierlog_server_", REFUSALS, registry)

    def api(self, api_key: int) -> ApiCounts:
        """Return the counts of an API that is served."""
        found = self._apis.get(api_key)
        if found is None:
            found = self._apis[api_key] = ApiCounts()
        return found

    def count_client(self, client_id: str, request_bytes: int, response_bytes: int) -> None:
        """Count a request of a client id."""
        found = self._clients.get(client_id)
        if found is None:
            has_room = len(self._clients) <= CLIENTS_MAX and len(client_id) <= _CLIENT_ID_MAX
            found = self._clients.setdefault(client_id if has_room else OTHER_CLIENTS, _ClientCounts())
        found.requests += 1
        found.request_bytes += request_bytes
        found.response_bytes += response_bytes

    def collect(self) -> Iterable[Metric]:
        """Yield the samples, as a Collector of prometheus_client gives them."""
        from prometheus_client.core import CounterMetricFamily

        yield from super().collect()
        text = "Clients that proved who they are."
        yield CounterMetricFamily(f"{self.prefix}authentications", text, value=self.authentications)
        yield from self._api_series()
        yield from self._client_series()

    def _api_series(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily(self.prefix + "requests", "Requests, by API.", labels=["api"])
        request_bytes = CounterMetricFamily(self.prefix + "request_bytes", "Bytes of requests, by API.", labels=["api"])
        response_bytes = CounterMetricFamily(
            self.prefix + "response_bytes", "Bytes of responses, by API.", labels=["api"]
        )
        at_work = GaugeMetricFamily(
            self.prefix + "requests_at_work", "Requests that are worked on, by API.", labels=["api"]
        )
        text = "From the beginning of the work on a request to its answer, waiting for data included."
        seconds = HistogramMetricFamily(self.prefix + "handler_seconds", text, labels=["api"])
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
        requests = CounterMetricFamily(self.prefix + "client_requests", f"Requests, {text}", labels=labels)
        request_bytes = CounterMetricFamily(self.prefix + "client_request_bytes", f"Their bytes, {text}", labels=labels)
        response_bytes = CounterMetricFamily(
            self.prefix + "client_response_bytes", f"Bytes of their responses, {text}", labels=labels
        )
        for client_id, counts in list(self._clients.items()):
            requests.add_metric([client_id], counts.requests)
            request_bytes.add_metric([client_id], counts.request_bytes)
            response_bytes.add_metric([client_id], counts.response_bytes)
        return (requests, request_bytes, response_bytes)


@cache
def _label(api_key: int) -> str:
    return api_name(api_key)
