"""``tierlog replica``: serve a bucket to Kafka's clients, read-only."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tierlog._extras import require_extra
from tierlog.cli.exits import ExitCode, complain
from tierlog.cli.options import (
    CommandConfigOption,
    ConfigOption,
    LayoutName,
    LayoutOption,
    LogStartOption,
    MetadataOption,
    PathArgument,
    TopicsArgument,
)
from tierlog.cli.tiers import check_command_config, command_keys, config_keys
from tierlog.errors import ConfigError


def replica(
    path: PathArgument,
    topic: TopicsArgument = None,
    config: ConfigOption = None,
    layout: LayoutOption = LayoutName.AUTO,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect.")
    ] = "127.0.0.1:9092",
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST:PORT",
            help="The address that clients are told to connect to; by default the one that they reached. Beside "
            "--upstream HOST:FIRST-LAST: the ports that stand for its brokers, by default the 16 behind --listen.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="Keeps groups' offsets (beside --upstream they are the brokers') and the last listing. Without it "
            "they are in memory and end with the server.",
        ),
    ] = None,
    refresh: Annotated[
        float, typer.Option("--refresh", metavar="SECONDS", min=0.1, help="Time between two listings of the bucket.")
    ] = 60.0,
    metadata: MetadataOption = None,
    command_config: CommandConfigOption = None,
    log_start: LogStartOption = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", help="By default an id that is made of PATH.")
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Speak TLS, with this certificate and its chain (PEM)."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of --tls-cert (PEM).")
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option("--users", metavar="FILE", help="Demand SASL (PLAIN, SCRAM) of clients; a user on each line."),
    ] = None,
    user_topics: Annotated[
        Path | None,
        typer.Option(
            "--user-topics",
            metavar="FILE",
            help="The topics that each of --users may read, USER:TOPIC on each line; without it all of them.",
        ),
    ] = None,
    monitor: Annotated[
        str | None,
        typer.Option(
            "--monitor", metavar="HOST:PORT", help="Serve /metrics (Prometheus), /livez and /readyz there, over HTTP."
        ),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            "--upstream",
            metavar="HOST:PORT[,…]",
            help="Stand in front of this live cluster: clients reach all of it here.",
        ),
    ] = None,
    upstream_config: Annotated[
        Path | None,
        typer.Option(
            "--upstream-config",
            metavar="FILE",
            help="A Kafka client's keys of security (security.protocol, sasl.*, ssl.*) for --upstream.",
        ),
    ] = None,
    prefer: Annotated[
        str | None,
        typer.Option(
            "--prefer",
            metavar="<remote|local>",
            help="Beside --upstream: all that the bucket has is read there (remote, the default), or only what is on "
            "no broker's disk.",
        ),
    ] = None,
    upstream_refresh: Annotated[
        float | None,
        typer.Option(
            "--upstream-refresh",
            metavar="SECONDS",
            min=0.05,
            help="How long what brokers say of a partition counts: records that are deleted beside the front are "
            "served for so long. By default 1.",
        ),
    ] = None,
    auth_refresh: Annotated[
        float | None,
        typer.Option(
            "--auth-refresh",
            metavar="SECONDS",
            min=0.1,
            help="How long a client's right to read a topic counts. By default 10.",
        ),
    ] = None,
) -> ExitCode:
    """Serve a bucket as a read-only Kafka server: any Kafka client reads its history, and no broker is asked.

    Topics, offsets, times, both isolation levels and consumer groups are served as a broker serves them; the high
    watermark is the end of the tier. Writes are refused. The bucket is listed again every --refresh seconds.

    --config takes the brokers' rsm.config.* keys, and Kafka's keys of limits (max.connections, fetch.max.bytes,
    group.max.size …) and of deadlines (connections.max.idle.ms, request.deadline.ms …). SIGTERM ends the server with 0;
    SIGHUP has it look at once whether users, their topics, certificate and key have changed, as it does each 30 s.

    With --upstream it is the one address of a live cluster: each connection of a client goes on to one broker, behind a
    port of its own (the first of --advertise + the broker's id, modulo the number of ports), writes, groups and
    transactions pass through, and clients authenticate themselves to the brokers. It waits until the cluster answers.
    """
    with _no_collections() as start_ended:
        require_extra("server", "serving Kafka's clients")
        from tierlog.broker.front.front_config import read_front_config, with_sources
        from tierlog.broker.replica.replica_config import (
            CONFIG_KEYS,
            MetadataSource,
            read_replica_config,
            with_security,
        )
        from tierlog.broker.replica.serving import serve_replica
        from tierlog.cli.tiers import TopicChoice
        from tierlog.serving.serving_config import parse_address

        check_command_config(metadata, command_config)
        choice = TopicChoice.of(path, topic)
        if (tls_cert is None) is not (tls_key is None):
            raise ConfigError("--tls-cert and --tls-key go together")
        if user_topics is not None and users is None:
            raise ConfigError("--user-topics goes with --users: without them nobody says who she is")
        front_options = {
            "--upstream-config": upstream_config,
            "--prefer": prefer,
            "--upstream-refresh": upstream_refresh,
            "--auth-refresh": auth_refresh,
        }
        if upstream is None:
            for name, value in front_options.items():
                if value is not None:
                    raise ConfigError(f"{name} goes with --upstream")
        else:
            _check_front(users=users, cluster_id=cluster_id)
        keys = config_keys(config, CONFIG_KEYS) or {}
        made = read_replica_config(path, keys, cluster_id=cluster_id)
        made = with_security(
            made,
            keys,
            certificate=_text(tls_cert),
            key=_text(tls_key),
            users=_text(users),
            user_topics=_text(user_topics),
        )
        host, port = parse_address("--listen", listen)
        front = None
        advertised = ("", 0)
        if upstream is not None:
            front = read_front_config(upstream, command_keys(upstream_config), advertise=advertise, listen_port=port)
            front = with_sources(front, prefer, upstream_refresh, auth_refresh)
        elif advertise is not None:
            advertised = parse_address("--advertise", advertise)
        made = replace(
            made,
            server=replace(
                made.server, host=host, port=port, advertised_host=advertised[0], advertised_port=advertised[1]
            ),
            topics=(*choice.names, *choice.patterns),
            layout=layout.value,
            state=_text(state),
            refresh_seconds=refresh,
            metadata=MetadataSource(tuple(metadata or ()), command_keys(command_config)),
            log_starts=tuple(log_start or ()),
            monitor=None if monitor is None else parse_address("--monitor", monitor),
            front=front,
        )

        def on_ready(host: str, port: int) -> None:
            start_ended()
            complain(f"{path} is served on {host}:{port}", level=logging.INFO)

        serve_replica(made, on_ready=on_ready)
    return ExitCode.DONE


def _check_front(*, users: Path | None, cluster_id: str | None) -> None:
    """Raise ConfigError for an option of a server that stands for itself."""
    if users is not None:
        raise ConfigError("--users goes without --upstream: clients authenticate themselves to the brokers")
    if cluster_id is not None:
        raise ConfigError("--cluster-id goes without --upstream: clients are told the cluster's own")


@contextmanager
def _no_collections() -> Iterator[Callable[[], None]]:
    """Stop garbage collection until the yielded function is called: next to nothing of a start is garbage, and
    collections take a tenth of its time. Objects of the start are frozen: no later collection scans them.
    """

    def end() -> None:
        gc.freeze()
        gc.enable()

    gc.disable()
    try:
        yield end
    finally:
        gc.enable()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
