"""DescribeCluster as clients see it."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.support.api_calls import call, make_request
from tierlog.broker.apis.describe_cluster import DescribeClusterHandler, ServerIdentity

HANDLER = DescribeClusterHandler(ServerIdentity("cluster", 5, "rack-a"))


@pytest.mark.parametrize("version", HANDLER.versions)
def test_the_cluster_is_one_node(version: int) -> None:
    """Admin clients would find nobody to ask."""
    for asked, operations in ((False, -(2**31)), (True, 1 << 8 | 1 << 10)):
        answer = call(
            HANDLER,
            version,
            make_request(60, version, include_cluster_authorized_operations=asked, include_fenced_brokers=False),
        )
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (ErrorCode.none, "cluster", 5)
        (broker,) = answer.brokers
        assert (broker.broker_id, broker.host, broker.port, broker.rack) == (5, "replica.example", 9092, "rack-a")
        assert answer.cluster_authorized_operations == operations


@pytest.mark.parametrize("version", [1, 2])
def test_who_looks_for_controllers_is_told(version: int) -> None:
    """A tool for controllers would take this node for one."""
    for endpoint_type, error in ((2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)):
        flags = {"include_cluster_authorized_operations": True, "include_fenced_brokers": False}
        request = make_request(60, version, **flags, endpoint_type=endpoint_type)
        answer = call(HANDLER, version, request)
        assert (answer.error_code, answer.brokers, answer.controller_id) == (error, (), -1)
        assert answer.error_message
