"""Metadata managers by class: ours, a third party's, and what is none."""

from __future__ import annotations

import pytest

from tests.contract.dict_metadata_manager import DictMetadataManager
from tierlog.errors import ConfigError
from tierlog.remote import TopicBasedRemoteLogMetadataManager
from tierlog.remote.metadata.plugins import load_metadata_manager

THIRD = "tests.contract.dict_metadata_manager"
KAFKAS = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


def test_kafkas_class_is_ours() -> None:
    """A broker's file works unchanged."""
    for given in (KAFKAS, "tierlog.remote.TopicBasedRemoteLogMetadataManager"):
        assert isinstance(load_metadata_manager(given), TopicBasedRemoteLogMetadataManager)
    assert isinstance(load_metadata_manager(), TopicBasedRemoteLogMetadataManager)


def test_a_third_partys() -> None:
    """It knows the interface alone."""
    assert isinstance(load_metadata_manager(f"{THIRD}.DictMetadataManager"), DictMetadataManager)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("org.apache.kafka.server.log.remote.storage.NoOpRemoteLogMetadataManager", "no counterpart"),
        ("nowhere.at.All", "cannot load nowhere.at"),
        (f"{THIRD}.Missing", "has no class Missing"),
        (f"{THIRD}.RemoteStorageException", "is no RemoteLogMetadataManager"),
        ("tierlog.remote.RemoteLogMetadataManager", "abstract"),
    ],
)
def test_what_is_none(name: str, said: str) -> None:
    """The key is named, and nothing is guessed."""
    with pytest.raises(ConfigError, match=r"remote\.log\.metadata\.manager\.class\.name") as caught:
        load_metadata_manager(name)
    assert said in str(caught.value)
