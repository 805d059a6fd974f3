"""``tierlog sidecar``: serve the storage manager to the Kafka brokers of this machine."""

from __future__ import annotations

import importlib.resources
import json
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from tierlog._extras import require_extra
from tierlog.cli.exits import ExitCode, complain
from tierlog.errors import ConfigError

#: The line that tells who started this process that clients can connect.
_READY = "ready"


def sidecar(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The storage manager's keys: a broker's .properties (rsm.config.*), or JSON/TOML of the same keys, "
            "and the sidecar's own. - is one line of JSON on stdin, whose end then ends the sidecar: as the plugin of "
            "a broker starts one.",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="unix:PATH", help="The socket that brokers connect to.")
    ] = "unix:/run/tierlog/sidecar.sock",
    group: Annotated[
        str, typer.Option("--group", metavar="GROUP", help="Its members may connect too, beside this user and root.")
    ] = "",
    allow_logs: Annotated[
        list[Path] | None,
        typer.Option(
            "--allow-logs",
            metavar="DIR",
            help="A log directory of a broker (log.dirs), from which segments are copied; may be given several times.",
        ),
    ] = None,
    monitor: Annotated[
        str | None,
        typer.Option(
            "--monitor", metavar="HOST:PORT", help="Serve /metrics (Prometheus), /livez and /readyz there, over HTTP."
        ),
    ] = None,
    jar_path: Annotated[
        bool,
        typer.Option("--jar-path", help="Print where the plugin's jar lies, for the brokers' class path, and end."),
    ] = False,
) -> ExitCode:
    """Serve the storage manager of a configuration to the Kafka brokers of this machine, through their plugin
    io.tierlog.kafka.TierlogRemoteStorageManager: one process for all their partitions, with its caches outside of the
    JVM.

    SIGTERM ends it with 0, once the copies under way are done or undone; SIGHUP has it read keys and credentials again.
    """
    if jar_path:
        print(_find_jar())
        return ExitCode.DONE
    require_extra("sidecar", "serving a broker's plugin")
    from tierlog.remote.config.property_file import read_property_file
    from tierlog.runtime.machine import Machine
    from tierlog.runtime.machine.unix_socket import UNIX, UnixListener
    from tierlog.serving.serving_config import parse_address
    from tierlog.sidecar.sidecar import serve_sidecar
    from tierlog.sidecar.sidecar_config import CONFIG_KEYS, read_sidecar_config

    if config is None:
        raise ConfigError("--config is missing: the keys of the storage manager, as a broker has them")
    if not listen.startswith(UNIX):
        raise ConfigError(f"--listen {listen!r}: unix:PATH is expected")
    is_child = str(config) == "-"
    on_stdin = _keys_on_stdin() if is_child else {}
    made = read_sidecar_config(
        UnixListener(listen.removeprefix(UNIX), group),
        lambda: on_stdin if is_child else read_property_file(str(config), Machine().files, others=CONFIG_KEYS),
        allowed_logs=tuple(map(str, allow_logs or ())),
        is_child=is_child,
        monitor=None if monitor is None else parse_address("--monitor", monitor),
    )

    def on_ready(address: str, _port: int) -> None:
        if is_child:
            print(_READY, flush=True)
        complain(f"the storage manager is served on {address}", level=logging.INFO)

    serve_sidecar(made, on_ready=on_ready)
    return ExitCode.DONE


def _find_jar() -> str:
    """Raises ConfigError: this installation has no jar."""
    from tierlog.runtime.machine import Machine

    found = str(importlib.resources.files("tierlog.sidecar") / "jars" / "tierlog-kafka.jar")
    if Machine().files.find(found) is None:
        raise ConfigError("this installation has no jar: install a wheel of a release, or build one (make kafka-jar)")
    return found


def _keys_on_stdin() -> dict[str, str]:
    """Raises ConfigError: it is no line of JSON with text for each key."""
    try:
        keys = json.loads(sys.stdin.buffer.readline())
    except ValueError:
        raise ConfigError("stdin has no line of JSON") from None
    if not isinstance(keys, dict) or not all(isinstance(value, str) for value in keys.values()):
        raise ConfigError("stdin: a JSON object is expected, with text for each key")
    return keys
