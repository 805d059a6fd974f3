"""The units of systemd and the Dockerfile beside the plugin: what they take away, and that they name what is there."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest

from tests.support.checkout import BIN, ROOT, needs_checkout

pytestmark = needs_checkout

HERE = ROOT / "bindings" / "kafka"
SERVICE, SOCKET = HERE / "tierlog-sidecar.service", HERE / "tierlog-sidecar.socket"
REPLICA = ROOT / "deploy" / "tierlog-replica.service"
#: What `systemd-analyze security` calls the exposure of a service, 0 to 10; one that is merely started has 9.
EXPOSURE_MAX = 2.0
#: Keys of a unit that harden nothing, or are a service's own.
OWN = ("Type", "User", "Group", "Exec", "Environment", "Restart", "Timeout", "Limit", "StateDirectory")


def directives(unit: pathlib.Path) -> list[tuple[str, str]]:
    lines = [line.partition("=") for line in unit.read_text().splitlines() if not line.startswith("#")]
    return [(key, value) for key, equals, value in lines if equals]


def instructions() -> list[tuple[str, str]]:
    """(instruction, its arguments) of the Dockerfile, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (HERE / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(" ", 1)[0], " ".join(line.split(" ", 1)[1].split())) for line in text.splitlines() if line]


def test_the_service_is_hardened_as_the_replicas_is() -> None:
    """Otherwise the sidecar, which has the store's secrets, may do more than a server that only reads."""
    service = REPLICA.read_text().partition("[Service]")[2].partition("[Install]")[0]
    wanted = [tuple(line.split("=", 1)) for line in service.splitlines() if "=" in line and not line.startswith("#")]
    hardening = [(key, value) for key, value in wanted if not key.startswith(OWN)]
    assert len(hardening) > 20
    assert [each for each in hardening if each not in directives(SERVICE)] == []


def test_the_options_that_are_shown_are_there() -> None:
    """A user who copies the example gets a sidecar that does not start."""
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    known = set(
        re.findall(r"^\| `(--[a-z-]+)", page.split("\n## tierlog sidecar\n")[1].split("\n## ")[0], re.MULTILINE)
    )
    [start] = [value for key, value in directives(SERVICE) if key == "ExecStart"]
    shown = set(re.findall(r"--[a-z-]+", start.partition(" sidecar ")[2]))
    [more] = re.findall(r"TIERLOG_OPTIONS=(.*)", SERVICE.read_text())
    assert {"--config", "--listen", "--group", "--allow-logs"} <= shown | set(re.findall(r"--[a-z-]+", more))
    assert shown | set(re.findall(r"--[a-z-]+", more)) <= known


def test_service_and_socket_agree() -> None:
    """If this fails, brokers connect to a socket that the sidecar does not serve, or may not open it."""
    socket = dict(directives(SOCKET))
    [start] = [value for key, value in directives(SERVICE) if key == "ExecStart"]
    assert f"--listen unix:{socket['ListenStream']} " in start
    assert f"--group {socket['SocketGroup']} " in start
    assert socket["SocketMode"] == "0660"
    assert f'"{socket["ListenStream"]}"' in (HERE / "src/main/java/io/tierlog/kafka/Sidecar.java").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units(tmp_path: pathlib.Path) -> None:
    """A key that systemd does not know is passed over with a warning, and hardens nothing."""
    for unit in (SERVICE, SOCKET):
        text = unit.read_text().replace("/opt/tierlog/bin/tierlog ", f"{BIN / 'tierlog'} ")
        (tmp_path / unit.name).write_text(text)
    service = str(tmp_path / SERVICE.name)
    limit = f"--threshold={EXPOSURE_MAX * 10:.0f}"
    for command in (["verify", service, str(tmp_path / SOCKET.name)], ["security", "--offline=true", limit, service]):
        done = subprocess.run(["systemd-analyze", *command], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown" not in done.stderr


def test_the_image() -> None:
    """An image that runs as root, lacks a library, changes from day to day, or names what is not there."""
    found = instructions()
    last_stage = found[max(number for number, (name, _) in enumerate(found) if name == "FROM") :]
    [user] = [value for name, value in last_stage if name == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    for name, value in found:
        assert name != "ADD"
        if name == "FROM":
            assert re.match(r"[\w./-]+:\d[\w.-]*", value), value
        if name == "RUN" and "apt-get install" in value:
            assert "--no-install-recommends" in value
            assert "rm -rf /var/lib/apt/lists/*" in value
        if name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(each, str) for each in json.loads(value))
    copied = [value.split()[:-1] for name, value in found if name == "COPY" and "--from" not in value]
    sources = {source for each in copied for source in each}
    assert [source for source in sources if not (ROOT / source).exists()] == []
    ignored = (HERE / "Dockerfile.dockerignore").read_text().split()
    assert {line[1:] for line in ignored if line.startswith("!")} == sources
    runs = " ".join(value for name, value in found if name == "RUN")
    packages = re.findall(r'"(lib[\w-]+-dev)"', (ROOT / "setup.py").read_text())
    assert [package for package in packages if package not in runs.split()] == []
    [extras] = re.findall(r"'\.\[([\w,]+)\]'", runs)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "sidecar" in extras.split(",")
    assert set(extras.split(",")) <= set(known)
