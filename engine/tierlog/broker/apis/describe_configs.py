"""DescribeConfigs: what a read-only server can say of its configuration and that of topics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.server_identity import ServerIdentity
from tierlog.broker.apis.topic_names import error_of_missing
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.partitions import Catalog
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.protocol.encoding import MadeElements
from tierlog.broker.protocol.entities import Entities, entities_of, field_of

#: ConfigResource.Type's numbers.
_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
#: ConfigSource's numbers. What is told of topics is the default here, which nobody set: MirrorMaker copies all else to
#: the cluster that it fills, which may have no tier.
_STATIC_BROKER_CONFIG, _DEFAULT_CONFIG = 4, 5
#: ConfigType's numbers.
_BOOLEAN, _STRING, _INT = 1, 2, 3

#: What holds for every topic of a tier: Kafka copies no compacted topic, and nobody writes here. What a topic's
#: retention is, no bucket tells.
TOPIC_CONFIGS: Final = {"cleanup.policy": "delete", "remote.storage.enable": "true"}


class DescribeConfigsHandler:
    """Answers DescribeConfigs. All of it is read-only.

    Args:
        catalog: What is served.
        identity: Who this node is.
        topic_configs: Key -> value of every topic.
    """

    api_key: ClassVar[int] = 32
    versions: ClassVar[range] = range(1, 5)

    def __init__(
        self, catalog: Catalog, identity: ServerIdentity, *, topic_configs: Mapping[str, str] | None = None
    ) -> None:
        self._catalog = catalog
        self._identity = identity
        self._topic_configs = dict(TOPIC_CONFIGS if topic_configs is None else topic_configs)
        self._broker_configs = {
            "auto.create.topics.enable": "false",
            "broker.id": str(identity.node_id),
            "default.replication.factor": "1",
            "delete.topic.enable": "false",
            "min.insync.replicas": "1",
            "node.id": str(identity.node_id),
        } | ({} if identity.rack is None else {"broker.rack": identity.rack})

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """One result a resource, in the order of the request."""
        entities = entities_of(self.api_key, context.api_version)
        with_synonyms = field_of(request, "include_synonyms", default=False)
        return entities.response(
            results=MadeElements(request.resources, partial(self._result, entities, with_synonyms=with_synonyms)),
        )

    def _result(self, entities: Entities, resource: Any, *, with_synonyms: bool) -> Any:
        error, text = ErrorCode.none, None
        configs: Mapping[str, str] = {}
        try:
            configs = self._configs(resource.resource_type, resource.resource_name)
        except ApiError as refused:
            error, text = refused.code, refused.text or None
        source = _DEFAULT_CONFIG if resource.resource_type == _TOPIC else _STATIC_BROKER_CONFIG
        wanted = frozenset(resource.configuration_keys or configs)
        return entities.make(
            "DescribeConfigsResult",
            error_code=error,
            error_message=text,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(
                _config(entities, name, value, source, with_synonyms=with_synonyms)
                for name, value in configs.items()
                if name in wanted
            ),
        )

    def _configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The configuration of a resource. Raises ApiError."""
        if resource_type == _TOPIC:
            if self._catalog.find(name) is None:
                raise ApiError(error_of_missing(name))
            return self._topic_configs
        if resource_type in (_BROKER, _BROKER_LOGGER):
            if name == "" and resource_type == _BROKER:
                return {}  # what was set for all brokers at run time
            if name != str(self._identity.node_id):
                text = f"the one broker here is {self._identity.node_id}, not {name!r}"
                raise ApiError(ErrorCode.invalid_request, text)
            return self._broker_configs if resource_type == _BROKER else {}
        if resource_type in (_CLIENT_METRICS, _GROUP):
            return {}  # nobody can have set anything
        raise ApiError(ErrorCode.invalid_request, f"there is no resource type {resource_type}")


def _config(entities: Entities, name: str, value: str, source: int, *, with_synonyms: bool) -> Any:
    synonyms: tuple[Any, ...] = ()
    if with_synonyms:
        synonyms = (entities.make("DescribeConfigsSynonym", name=name, value=value, source=source),)
    return entities.make(
        "DescribeConfigsResourceResult",
        name=name,
        value=value,
        read_only=True,
        config_source=source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=_config_type(value),
        documentation=None,
    )


def _config_type(value: str) -> int:
    if value in ("true", "false"):
        return _BOOLEAN
    return _INT if value.isdecimal() else _STRING
