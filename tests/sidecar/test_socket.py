"""The socket itself: who may connect, who started the sidecar, and what systemd hands it."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

import pytest

from tests.support.command import environment
from tests.support.segments import make_segment, sound_log
from tests.support.sidecars import REFUSED, SidecarClient, SidecarError, sidecar, storage_keys
from tierlog.sidecar.protocol import config_digest

NOBODY = 65534
_CONNECT = """
import os, socket, sys
os.setgroups([int(each) for each in sys.argv[2:]]); os.setgid(65534); os.setuid(65534)
peer = socket.socket(socket.AF_UNIX); peer.settimeout(10)
try:
    peer.connect(sys.argv[1])
    peer.sendall(b"\\0\\0\\0\\x11\\0TLSC\\0\\1\\0\\1\\0\\0\\0\\1\\xff\\xff\\xff\\xff")
    print("served" if peer.recv(1) else "ended")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def keys(tmp_path: pathlib.Path) -> dict[str, str]:
    (tmp_path / "bucket").mkdir()
    return storage_keys(tmp_path / "bucket")


def asked_by_nobody(path: str, *groups: int) -> str:
    command = [sys.executable, "-I", "-c", _CONNECT, path, *map(str, groups)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_other_users_are_refused(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    """If this fails, any process of the machine reads the tier, and copies into it."""
    with sidecar(tmp_path, keys) as server:
        pathlib.Path(server.path).parent.chmod(0o755)
        assert stat.S_IMODE(pathlib.Path(server.path).stat().st_mode) == 0o600
        assert asked_by_nobody(server.path) == "PermissionError"
        pathlib.Path(server.path).chmod(0o666)
        assert asked_by_nobody(server.path) in ("ended", "ConnectionResetError", "BrokenPipeError")
        with server.client() as client:
            assert client.health() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_members_of_a_group_are_served(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    """If this fails, a sidecar under a user of its own serves no broker."""
    with sidecar(tmp_path, keys, "--group", "4242") as server:
        pathlib.Path(server.path).parent.chmod(0o755)
        assert stat.S_IMODE(pathlib.Path(server.path).stat().st_mode) == 0o660
        assert asked_by_nobody(server.path, 4242) == "served"
        assert asked_by_nobody(server.path, 4243) == "PermissionError"


def test_a_group_that_there_is_not(tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
    """If this fails, a typing error opens the socket to whoever has that number."""
    config = tmp_path / "c.properties"
    config.write_text("".join(f"rsm.config.{key}={value}\n" for key, value in keys.items()))
    command = [sys.executable, "-m", "tierlog", "sidecar", "--config", config, "--listen", f"unix:{tmp_path}/s"]
    done = subprocess.run(
        [*command, "--group", "no-such-group"], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 2
    assert "no-such-group" in done.stderr
    assert not (tmp_path / "s").exists()


class TestNames:
    def test_a_name_that_nobody_listens_on_is_taken(self, keys: dict[str, str]) -> None:
        """If this fails, a sidecar that was killed cannot be started again."""
        with tempfile.TemporaryDirectory(prefix="sidecar-") as short:
            folder = pathlib.Path(short)
            with sidecar(folder, keys, exit_code=None) as server:
                server.process.kill()
                server.process.wait()
                left = server.path
                assert pathlib.Path(left).is_socket()
                command = [sys.executable, "-m", "tierlog", "sidecar", "--listen", f"unix:{left}"]
                command += ["--config", str(folder / "sidecar.properties")]
                again = subprocess.Popen(command, env=environment())
                try:
                    deadline = time.monotonic() + 20
                    while True:
                        try:
                            with SidecarClient(left) as client:
                                assert client.health() == ""
                            break
                        except OSError:
                            assert time.monotonic() < deadline
                            time.sleep(0.02)
                    taken = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
                    assert taken.returncode == 3
                    assert "another server listens there" in taken.stderr
                finally:
                    again.send_signal(signal.SIGTERM)
                    assert again.wait(20) == 0
                    assert not pathlib.Path(left).exists()

    def test_no_file_is_replaced(self, tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
        """If this fails, a wrong path in a unit file deletes a file."""
        config = tmp_path / "c.properties"
        config.write_text("".join(f"rsm.config.{key}={value}\n" for key, value in keys.items()))
        for listen in (f"unix:{config}", f"unix:/{'x' * 120}", "unix:relative", "127.0.0.1:5"):
            command = [sys.executable, "-m", "tierlog", "sidecar", "--config", config, "--listen", listen]
            done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
            assert done.returncode in (2, 3), listen
            assert "Traceback" not in done.stderr
        assert config.read_text()


class TestChildren:
    def test_it_ends_with_who_started_it(self, tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
        """If this fails, each broker that is killed leaves a process behind."""
        with sidecar(tmp_path, keys, as_child=True) as server, server.client() as client:
            assert client.health() == ""

    def test_a_folder_that_is_not_the_plugins_stays(self, tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
        """If this fails, a sidecar removes what somebody else has made."""
        with sidecar(tmp_path, keys, as_child=True) as server:
            folder = pathlib.Path(server.path).parent
            assert folder.stat().st_mode & 0o777 == 0o700
            server.process.stdin.close()  # type: ignore[union-attr]
            assert server.process.wait() == 0
            assert list(folder.iterdir()) == []

    def test_it_learns_the_log_directories(self, tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
        """If this fails, an operator has to name the directories twice."""
        segment = make_segment(sound_log(batches=3)).closed_in(tmp_path / "disk1" / "orders-0")
        with sidecar(tmp_path, keys, as_child=True) as server, server.client() as client:
            metadata = segment.finished(client.copy(segment))
            assert client.fetch(metadata) == segment.log
            with pytest.raises(SidecarError) as raised:
                client.copy(segment, log_segment="/etc/shadow")
            assert raised.value.status == REFUSED

    def test_it_obeys_its_own_keys_of_the_broker(self, tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
        """If this fails, a broker that gives its sidecar a key of a sidecar's does not start."""
        given = {**keys, "copies.max": "2", "stop.grace.ms": "700"}
        with (
            sidecar(tmp_path, keys, own={"copies.max": "2", "stop.grace.ms": "700"}, as_child=True) as server,
            server.client(digest=config_digest(given)) as client,
        ):
            assert client.health() == ""

    def test_its_secrets_are_nowhere(self, tmp_path: pathlib.Path, keys: dict[str, str]) -> None:
        """If this fails, whoever may list processes has the credentials of the bucket."""
        secret = "the-secret-of-the-store"
        given = keys | {"storage.aws.access.key.id": "a", "storage.aws.secret.access.key": secret}
        with sidecar(tmp_path, given, as_child=True) as server:
            process = pathlib.Path(f"/proc/{server.process.pid}")
            assert secret.encode() not in (process / "cmdline").read_bytes()
            assert secret.encode() not in (process / "environ").read_bytes()
        (tmp_path / "sidecar.properties").unlink()
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]

    @pytest.mark.parametrize("line", [b"", b"[]\n", b"{]\n", b'{"chunk.size": 1}\n'])
    def test_what_comes_on_stdin_is_checked(self, tmp_path: pathlib.Path, line: bytes) -> None:
        """If this fails, a plugin of another release gets a traceback."""
        command = [sys.executable, "-m", "tierlog", "sidecar", "--config", "-", "--listen", f"unix:{tmp_path}/s"]
        done = subprocess.run(command, input=line, capture_output=True, env=environment(), check=False)
        assert done.returncode == 2
        assert b"stdin" in done.stderr
        assert b"Traceback" not in done.stderr


class TestSystemd:
    def test_it_takes_the_socket_and_tells_its_state(self, keys: dict[str, str]) -> None:
        """If this fails, the unit of a service waits for its start for ever, or two sockets have one name."""
        with tempfile.TemporaryDirectory(prefix="sidecar-") as short:
            folder = pathlib.Path(short)
            config = folder / "c.properties"
            config.write_text("".join(f"rsm.config.{key}={value}\n" for key, value in keys.items()))
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as states,
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
            ):
                states.bind(f"{short}/notify")
                states.settimeout(20)
                listener.bind(f"{short}/passed")
                listener.listen(10)
                script = (
                    "import os, sys\n"
                    "os.dup2(int(sys.argv[1]), 3); os.set_inheritable(3, True)\n"
                    "os.environ['LISTEN_PID'] = str(os.getpid()); os.environ['LISTEN_FDS'] = '1'\n"
                    "os.execv(sys.executable, [sys.executable, '-m', 'tierlog', *sys.argv[2:]])\n"
                )
                number = listener.fileno()
                command = [sys.executable, "-c", script, str(number), "sidecar", "--config", str(config)]
                process = subprocess.Popen(
                    [*command, "--listen", f"unix:{short}/other"],
                    env=environment(NOTIFY_SOCKET=f"{short}/notify"),
                    pass_fds=[number],
                )
                try:
                    assert states.recv(100) == b"READY=1"
                    with SidecarClient(f"{short}/passed") as client:
                        assert client.health() == ""
                    assert not pathlib.Path(f"{short}/other").exists()
                    process.send_signal(signal.SIGTERM)
                    assert states.recv(100) == b"STOPPING=1"
                    assert process.wait(20) == 0
                    assert pathlib.Path(f"{short}/passed").is_socket(), "it is systemd's"
                finally:
                    if process.poll() is None:
                        process.kill()
                    process.wait()
