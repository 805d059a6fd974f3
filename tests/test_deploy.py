"""The unit of systemd and the Dockerfile: what they take away from the server, and that they name what is there."""

from __future__ import annotations

import ast
import json
import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest

from tests.support.checkout import BIN, ROOT, needs_checkout

pytestmark = needs_checkout

UNIT = ROOT / "deploy" / "tierlog-replica.service"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
#: What `systemd-analyze security` calls the exposure of a service, 0 to 10; one that is merely started has 9.
EXPOSURE_MAX = 2.0


def directives() -> dict[str, list[str]]:
    """The keys of the unit, and their values in order."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def instructions() -> list[tuple[str, str]]:
    """(instruction, its arguments) of the Dockerfile, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(" ", 1)[0], " ".join(line.split(" ", 1)[1].split())) for line in text.splitlines() if line]


def options_of_replica() -> set[str]:
    section = (ROOT / "docs" / "reference" / "cli.md").read_text().split("\n## tierlog replica\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE))


@pytest.mark.parametrize("path", [UNIT, DOCKERFILE], ids=lambda path: path.name)
def test_the_options_that_are_shown_are_there(path: pathlib.Path) -> None:
    """A user who copies the example gets a server that does not start."""
    shown = set(re.findall(r"(?<=[\s=])--[a-z-]+", path.read_text()))
    others = {"--system", "--home-dir", "--shell", "--now", "--read-only", "--cap-drop", "--security-opt", "--from"}
    others |= {"--no-install-recommends", "--no-cache-dir", "--start-period", "--log-level", "--log-format", "--help"}
    shown -= others
    assert {"--state", "--listen", "--users"} <= shown
    assert shown <= options_of_replica()


def test_the_hardening_is_what_the_security_page_names() -> None:
    """Otherwise the page promises what the unit does not do."""
    section = (ROOT / "SECURITY.md").read_text().split("\n## The replica as a service\n")[1].split("\n## ")[0]
    named = re.findall(r"`(\w+)=([^`]*)`", section)
    assert len(named) > 15
    unit = directives()
    assert [(key, value) for key, value in named if value not in unit.get(key, ())] == []
    kept = (
        "Type",
        "User",
        "Group",
        "Exec",
        "Environment",
        "Restart",
        "Timeout",
        "Limit",
        "Description",
        "Wants",
        "After",
    )
    hardening = {key for key in unit if not key.startswith((*kept, "WantedBy", "StateDirectoryMode"))}
    assert hardening == {key for key, _ in named}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: pathlib.Path) -> None:
    """A key that systemd does not know is passed over with a warning, and hardens nothing."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/tierlog/bin/tierlog ", f"{BIN / 'tierlog'} "))
    for command in (["verify"], ["security", "--offline=true", f"--threshold={EXPOSURE_MAX * 10:.0f}"]):
        done = subprocess.run(
            ["systemd-analyze", *command, str(unit)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown" not in done.stderr


def test_the_image_runs_as_nobody_and_keeps_no_secret() -> None:
    """An image that runs as root, or carries a key in a layer, gives more away than the bucket."""
    found = instructions()
    last_stage = found[max(number for number, (name, _) in enumerate(found) if name == "FROM") :]
    users = [value for name, value in last_stage if name == "USER"]
    assert [re.fullmatch(r"[1-9]\d*:[1-9]\d*", user) is not None for user in users] == [True]
    assert "ADD" not in [name for name, _ in found]
    assert not [
        value
        for name, value in found
        if name in ("ARG", "ENV") and re.search("SECRET|TOKEN|PASSW", value, re.IGNORECASE)
    ]
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().split()
    assert "*" in ignored
    sources = {
        source for name, value in found if name == "COPY" and "--from" not in value for source in value.split()[:-1]
    }
    assert {line[1:] for line in ignored if line.startswith("!")} == sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_image_is_built_of_what_it_names() -> None:
    """Layers that hold package lists, bases that change from day to day, and shells that eat SIGTERM."""
    found = instructions()
    for name, value in found:
        if name == "FROM":
            assert re.match(r"[\w./-]+:\d[\w.-]*", value), value
        if name == "RUN" and "apt-get install" in value:
            assert "--no-install-recommends" in value
            assert "rm -rf /var/lib/apt/lists/*" in value
        if name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(each, str) for each in json.loads(value))
    [health] = [value for name, value in found if name == "HEALTHCHECK"]
    command = json.loads(health.partition(" CMD ")[2])
    ast.parse(command[2])
    [port] = re.findall(r"127\.0\.0\.1:(\d+)/livez", command[2])
    assert port in dict(found)["EXPOSE"].split()
    assert ("STOPSIGNAL", "SIGTERM") in found


def test_the_image_has_the_packages_of_the_build() -> None:
    """A library that is missing shows when the image is built, or when it runs."""
    runs = " ".join(value for name, value in instructions() if name == "RUN")
    setup = (ROOT / "setup.py").read_text()
    packages = re.findall(r'"(lib[\w-]+-dev)"', setup)
    assert len(packages) == 4
    assert [package for package in packages if package not in runs.split()] == []
    [extras] = re.findall(r"'\.\[([\w,]+)\]'", runs)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "server" in extras.split(",")
    assert set(extras.split(",")) <= set(known)
