"""DescribeConfigs: a read-only server's configuration and that of its topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.describe_cluster import ServerIdentity
from tierlog.broker.apis.topic_answers import error_of_missing
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.partitions import Catalog
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.protocol.entities import Entities, MadeElements, entities_of, field_of

#: ConfigResource.Type's numbers.
_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
#: ConfigSource's numbers. The configuration of topics is the default here, which was not set: MirrorMaker copies all
#: else to the cluster that it fills, which may have no tier.
_STATIC_BROKER_CONFIG, _DEFAULT_CONFIG = 4, 5
#: ConfigType's numbers.
_BOOLEAN, _STRING, _INT, _LONG, _LIST = 1, 2, 3, 5, 7


class _Config(NamedTuple):
    """A key of a resource.

    Args:
        value: What holds.
        config_type: Kafka's type of the key.
        documentation: For clients that ask for it.
    """

    value: str
    config_type: int
    documentation: str


#: The configuration that every topic of a replica has: Kafka copies no compacted topic to a tier, and nothing is
#: written, coded anew or deleted here. The brokers' retention of a topic is in no bucket.
TOPIC_CONFIGS: Final[Mapping[str, _Config]] = {
    "cleanup.policy": _Config("delete", _LIST, "Kafka copies no compacted topic to a tier."),
    "compression.type": _Config("producer", _STRING, "Batches are served as their producers made them."),
    "min.insync.replicas": _Config("1", _INT, "The one replica is in sync."),
    "remote.storage.enable": _Config("true", _BOOLEAN, "All that is served lies in a tier."),
    "retention.bytes": _Config("-1", _LONG, "The replica deletes nothing, however large a partition is."),
    "retention.ms": _Config("-1", _LONG, "The replica deletes nothing, however old it is."),
}


_NO_CONFIGS: Final[Mapping[str, _Config]] = {}


class DescribeConfigsHandler:
    """The handler of DescribeConfigs. All of it is read-only.

    Args:
        catalog: The served topics.
        identity: This node's identity.
    """

    api_key: ClassVar[int] = 32
    versions: ClassVar[range] = range(1, 5)

    def __init__(self, catalog: Catalog, identity: ServerIdentity) -> None:
        self._catalog = catalog
        self._identity = identity
        node_id = str(identity.node_id)
        self._broker_configs = {
            "auto.create.topics.enable": _Config("false", _BOOLEAN, "No topic is ever created."),
            "broker.id": _Config(node_id, _INT, "The id of this node, by its older name."),
            "default.replication.factor": _Config("1", _INT, "There is one node."),
            "delete.topic.enable": _Config("false", _BOOLEAN, "No topic is ever deleted."),
            "min.insync.replicas": _Config("1", _INT, "The one replica is in sync."),
            "node.id": _Config(node_id, _INT, "The id of this node."),
        }
        if identity.rack is not None:
            self._broker_configs["broker.rack"] = _Config(identity.rack, _STRING, "Where this node stands.")

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer one result a resource, in the order of the request; one that is named twice is answered once."""
        entities = entities_of(self.api_key, context.api_version)
        asked: dict[tuple[int, str], Any] = {}
        for resource in request.resources:
            asked.setdefault((resource.resource_type, resource.resource_name), resource)
        found = [(resource, self._configs(*named, context.may_read)) for named, resource in asked.items()]
        nested = sum(len(configs) for _, configs in found if configs is not None and not isinstance(configs, ApiError))
        return entities.response(results=MadeElements(found, partial(_result, request, entities), nested=nested))

    def _configs(
        self, resource_type: int, name: str, may_read: Callable[[str], bool]
    ) -> Mapping[str, _Config] | ApiError | None:
        """Return the configuration of a resource, or the error; None for an unknown topic."""
        if resource_type == _TOPIC:
            if not may_read(name):
                return ApiError(ErrorCode.topic_authorization_failed, "Topic authorization failed.")
            return None if self._catalog.find(name) is None else TOPIC_CONFIGS
        if resource_type in (_BROKER, _BROKER_LOGGER):
            if name == "" and resource_type == _BROKER:
                return {}  # the settings of all brokers, made at run time
            if name != str(self._identity.node_id):
                text = f"the one broker here is {self._identity.node_id}, not {name!r}"
                return ApiError(ErrorCode.invalid_request, text)
            return self._broker_configs if resource_type == _BROKER else {}
        if resource_type in (_CLIENT_METRICS, _GROUP):
            return {}  # no setting can have been made
        return ApiError(ErrorCode.invalid_request, f"there is no resource type {resource_type}")


def _result(request: Any, entities: Entities, found: tuple[Any, Mapping[str, _Config] | ApiError | None]) -> Any:
    resource, told = found
    error, text, configs = ErrorCode.none, None, _NO_CONFIGS
    if told is None:
        error = error_of_missing(resource.resource_name)
    elif isinstance(told, ApiError):
        error, text = told.code, told.text or None
    else:
        configs = told
    source = _DEFAULT_CONFIG if resource.resource_type == _TOPIC else _STATIC_BROKER_CONFIG
    wanted = frozenset(resource.configuration_keys or configs)
    return entities.make(
        "DescribeConfigsResult",
        error_code=error,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            _told(request, entities, name, config, source) for name, config in configs.items() if name in wanted
        ),
    )


def _told(request: Any, entities: Entities, name: str, config: _Config, source: int) -> Any:
    synonyms: tuple[Any, ...] = ()
    if field_of(request, "include_synonyms", default=False):
        synonyms = (entities.make("DescribeConfigsSynonym", name=name, value=config.value, source=source),)
    return entities.make(
        "DescribeConfigsResourceResult",
        name=name,
        value=config.value,
        read_only=True,
        config_source=source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=config.config_type,
        documentation=config.documentation if field_of(request, "include_documentation", default=False) else None,
    )
