"""The jar's requests: JSON, checked before anything is done with it. No message shows values of options."""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from pyspark_tierlog.plan.frames import PlanProtocolError
from pyspark_tierlog.pushdown import Comparison, tighten
from tierlog.scan.scan_request import RecordFilter

Column = Literal["topic", "partition", "offset", "timestamp"]
Operation = Literal["=", "in", "<", "<=", ">", ">="]
Literals = int | str | list[int] | list[str]
Function = tuple[Literal["count"]] | tuple[Literal["min", "max"], Literal["offset", "timestamp"]]


class _Words(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class Aggregates(_Words):
    """The aggregates that are asked for in place of records."""

    group_by: list[Literal["topic", "partition"]]
    functions: list[Function]


class ListRequest(_Words):
    op: Literal["list"]
    options: dict[str, str] = Field(repr=False)
    blobs: Annotated[int, Field(ge=0)] = 0


class _Filtered(_Words):
    """A request whose records pass filters, all of them."""

    filters: list[tuple[Column, Operation, Literals]] = []

    def record_filter(self) -> tuple[RecordFilter, bool]:
        """Return the filters as bounds, and whether the bounds are equivalent to the filters.

        Raises:
            PlanProtocolError: a value is not of its column's type.
        """
        found, exact = RecordFilter(), True
        for column, operation, value in self.filters:
            values: tuple[int | str, ...] = tuple(value) if isinstance(value, list) else (value,)
            wanted = str if column == "topic" else int
            if not values or not all(isinstance(each, wanted) for each in values):
                raise PlanProtocolError(f"a filter compares {column} with what that column does not hold")
            found, says_all = tighten(found, Comparison(column, operation, values))
            exact = exact and says_all
        return found, exact


class PlanRequest(_Filtered):
    op: Literal["plan"]
    options: dict[str, str] = Field(repr=False)
    columns: list[str]
    limit: Annotated[int, Field(ge=0)] | None = None
    aggregates: Aggregates | None = None
    blobs: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.limit is not None and self.aggregates is not None:
            raise ValueError("a limit and aggregates exclude each other")
        return self


class StreamRequest(_Filtered):
    """A question about a stream, which is opened when it is not known: the child may be a new one.

    Attributes:
        ask: Where it begins, where the tier ends, where the next batch ends, where the seams to the brokers of a batch
            lie, what a batch reads, what the query has read with it; or nothing: it has ended.
        stream: A name that no other stream has.
        topic_ids: Of the topics that the query has read.
        read: Topic, partition, offset and leader epoch of the last record of each partition that it has read.
        start, end: Of a batch, as a checkpoint has them.
        final: Where the query ends; None: it goes on.
        limited: Whether the limits of a trigger count.
        fresh: Whether the tier is looked at now.
        local: Where the brokers' local logs begin; None: not asked for.
        brokers: Topic, partition, and what ``BrokerFacts`` holds.
        filters: Of a plan; Spark applies them again, since records of brokers come without.
    """

    op: Literal["stream"]
    ask: Literal["begin", "ends", "next", "seams", "plan", "read", "end"]
    stream: str
    options: dict[str, str] = Field(repr=False)
    topic_ids: dict[str, str] = {}
    read: list[tuple[str, int, int, int]] = []
    start: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    final: dict[str, dict[str, int]] | None = None
    limited: bool = False
    fresh: bool = False
    local: dict[str, dict[str, int]] | None = None
    brokers: list[tuple[str, int, str | None, int | None, int | None, int | None]] = []
    columns: list[str] = []
    blobs: Annotated[int, Field(ge=0, le=0)] = 0


Request = ListRequest | PlanRequest | StreamRequest
_REQUESTS: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="op")])


def parse_request(body: bytes) -> Request:
    """Parse a request. Raises PlanProtocolError: not JSON, or no request."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise PlanProtocolError("the request is not JSON") from None  # the cause would quote it, secrets included
    try:
        return _REQUESTS.validate_python(_as_tuples(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"] if not isinstance(part, str) or part.isidentifier())
        raise PlanProtocolError(f"the request is malformed: {place or 'op'}: {first['msg']}") from None


def _as_tuples(value: object) -> object:
    """Lists as tuples: JSON has no tuples, and strict checking accepts no list for one."""
    if not isinstance(value, dict):
        return value
    found = dict(value)
    for name in ("filters", "brokers", "read"):
        if isinstance(rows := found.get(name), list):
            found[name] = [tuple(each) if isinstance(each, list) else each for each in rows]
    aggregates = found.get("aggregates")
    if isinstance(aggregates, dict) and isinstance(functions := aggregates.get("functions"), list):
        found["aggregates"] = aggregates | {"functions": [tuple(f) if isinstance(f, list) else f for f in functions]}
    return found
