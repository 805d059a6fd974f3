"""``rsm.config.file``: a broker's own file, or the same keys in JSON or TOML."""

from __future__ import annotations

import pytest

from tierlog.errors import ConfigError
from tierlog.remote.config import read_storage_config
from tierlog.remote.config.property_file import read_property_file
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles


class TestFile:
    """``rsm.config.file``."""

    def read(self, name: str, text: str, **given: str) -> str:
        files = MemoryFiles()
        files.put(name, text.encode())
        return read_storage_config({"rsm.config.file": name} | given, machine=Machine(files=files)).key_prefix

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("/a.properties", "broker.id=1\n# rsm.config.key.prefix=no\nrsm.config.key.prefix = tier/\n"),
            ("/a.properties", "rsm.config.key.\\\n  prefix: tier/"),
            ("/a.properties", "remote.log.storage.manager.impl.prefix=my.\nmy.key.prefix=tier/"),
            ("/a.json", '{"rsm.config.key.prefix": "tier/", "broker.id": 1}'),
            ("/a.json", '{"rsm": {"config": {"key": {"prefix": "tier/"}}}}'),
            ("/a.properties", "key.prefix=tier/\nstore.region=x\n"),
            ("/a.properties", "Key.Prefix=tier/"),
            ("/a.properties", "rsm.key.prefix=tier/"),
            ("/a.json", '{"key.prefix": "tier/", "chunk": {"size": 7}}'),
            ("/a.toml", "key.prefix = 'tier/'"),
            ("/dev/fd/63", ' {"key.prefix": "tier/"}'),
            ("/dev/fd/63", "key.prefix=tier/"),
            ("/a.toml", "[rsm.config]\nkey.prefix = 'tier/'\nkey.prefix2 = 1\n".replace("key.prefix2 = 1\n", "")),
        ],
    )
    def test_every_form(self, name: str, text: str) -> None:
        """If this fails, a broker's own file cannot be used."""
        assert self.read(name, text) == "tier/"

    @pytest.mark.parametrize("prefix", ["", "rsm.config."])
    def test_other_keys_of_a_broker_are_taken_where_they_are_asked_for(self, prefix: str) -> None:
        """If this fails, a server ignores its own limits in a broker's file, or refuses the file for them."""
        files = MemoryFiles()
        files.put("/a", f"{prefix}key.prefix=tier/\nmax.connections=5\n".encode())
        read = read_property_file("/a", files, others=("max.connections",))
        assert read == {f"{prefix}key.prefix": "tier/", "max.connections": "5"}
        if not prefix:
            with pytest.raises(ConfigError, match="key 2 is no key of the storage manager"):
                read_property_file("/a", files)

    def test_given_keys_win(self) -> None:
        """If this fails, an option on the command line does nothing."""
        given = {"key.prefix": "mine/"}
        assert self.read("/a.properties", "rsm.config.key.prefix=tier/", **given) == "mine/"

    @pytest.mark.parametrize(
        ("name", "text", "told"),
        [
            ("/a.properties", "broker.id=1\nmetrics.num.samples=2", "none of its keys"),
            ("/a.properties", "key.prefix=tier/\nkey.prefux=tier/", "nearest known one is key.prefix"),
            ("/a.json", "{", "a.json"),
            ("/a.json", "[1]", "top level"),
            ("/a.json", "[" * 100_000, "a.json"),
            ("/a.toml", "= 1", "a.toml"),
            ("/a.properties", "rsm.config.key.prefix=\\u12", "escape"),
            ("/a.properties", "rsm.config.key.prefix=1\nrsm.config.key.prefix=2", "twice"),
        ],
    )
    def test_files_that_cannot_be_read(self, name: str, text: str, told: str) -> None:
        """If this fails, a broken file is a traceback, or an empty configuration."""
        with pytest.raises(ConfigError, match=told):
            self.read(name, text)

    def test_a_file_that_is_not_there(self) -> None:
        """If this fails, a mistyped path reads as no configuration."""
        with pytest.raises(ConfigError, match="/nowhere"):
            read_storage_config({"rsm.config.file": "/nowhere"}, machine=Machine(files=MemoryFiles()))

    @pytest.mark.parametrize("secret", ["wJalrXUtnFEMI/K7MDENG", "aGVsbG8gd29ybGQhISE=", "hunter2 and more"])
    @pytest.mark.parametrize("before", ["", "key.prefix=tier/\n"])
    def test_a_secret_without_its_key_is_not_quoted(self, secret: str, before: str) -> None:
        """If this fails, `--config <(pass show s3)` that holds the secret alone prints it, into a job's log too."""
        with pytest.raises(ConfigError) as caught:
            self.read("/dev/fd/63", before + secret)
        assert secret[:7].lower() not in str(caught.value).lower()
        assert caught.value.__cause__ is None

    def test_a_broken_document_is_not_quoted(self) -> None:
        """If this fails, a comma too few in a file of secrets prints one of them."""
        for name, text in (("/a.json", '{"a": "hunter2" "b"}'), ("/a.toml", "a = hunter2"), ("/a", "a=hunter2\\u00")):
            with pytest.raises(ConfigError) as caught:
                self.read(name, text)
            assert "hunter2" not in str(caught.value)
