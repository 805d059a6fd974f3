"""The tables of a log's keys, asked of Kafka's own classes."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

from tests.support.peers import install
from tierlog.config_keys import rows
from tierlog.errors import ConfigError
from tierlog.log.local.log_config import CleanerConfig, LogConfig, LogDirectoryConfig

pytestmark = pytest.mark.interop

#: Prints name|default of every key, then the verdict (value or "refused") of each "key=value" argument.
_ASK = """
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.transaction.*;
import org.apache.kafka.server.config.*;
import org.apache.kafka.storage.internals.log.*;

class Ask {
    static String shown(Object value) {
        if (value instanceof List<?> many)
            return String.join(",", many.stream().map(Object::toString).toList());
        return String.valueOf(value);
    }

    public static void main(String[] args) throws Exception {
        ConfigDef topic = LogConfig.configDefCopy();
        var defs = List.of(topic, LogConfig.SERVER_CONFIG_DEF, ReplicationConfigs.CONFIG_DEF,
            TransactionLogConfig.CONFIG_DEF, TransactionStateManagerConfig.CONFIG_DEF,
            CleanerConfig.CONFIG_DEF, ServerConfigs.CONFIG_DEF);
        for (ConfigDef def : defs)
            for (var key : def.configKeys().values())
                System.out.println((def == topic ? "topic|" : "broker|") + key.name + "|" + shown(key.defaultValue));
        for (String arg : args) {
            String name = arg.substring(0, arg.indexOf('=')), value = arg.substring(arg.indexOf('=') + 1);
            try {
                System.out.println("said|" + name + "|" + shown(topic.parse(Map.of(name, value)).get(name)));
            } catch (Exception refused) {
                System.out.println("said|" + name + "|refused");
            }
        }
    }
}
"""
_NUMBERS = [
    "",
    "x",
    "0",
    "-1",
    "-2",
    "-3",
    "1",
    "3",
    "+4",
    " 5 ",
    "9",
    "10",
    "17",
    "18",
    "22",
    "23",
    "1048575",
    "1048576",
]
_NUMBERS += [
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "-131072",
    "-131073",
    "1.5",
    ".5",
]
_WORDS = ["true", "TRUE", "yes", "delete", "delete,compact", "delete,,", "none", "gzip", "CreateTime", "createTime"]
_WORDS += ["LogAppendTime", "*", "1:2", "1:2,3:4", "*,1:2"]


def test_keys_defaults_and_verdicts(tmp_path: pathlib.Path) -> None:
    """Else a topic's configuration that Kafka takes is refused here, or one is taken that no broker starts with."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("Kafka's jars are fetched by Maven, and need a JVM")
    source = tmp_path / "Ask.java"
    source.write_text(_ASK)
    known = {key: field for field, key in rows(LogConfig).items() if not key.own}
    questions = [(key, text) for key in known for text in (*_NUMBERS, *_WORDS)]
    command = [install.java(), "-cp", install.class_path("kafka"), str(source)]
    run = subprocess.run(
        [*command, *(f"{key.name}={text}" for key, text in questions)], check=True, capture_output=True, text=True
    )
    lines = [line.split("|", 2) for line in run.stdout.splitlines()]
    topics = {name: default for kind, name, default in lines if kind == "topic"}
    brokers = {name: default for kind, name, default in lines if kind == "broker"}
    assert topics.pop("internal.segment.bytes") == "null"
    assert {key.name: key.shown(key.default) for key in known} == topics
    ours = {
        key.name: key.shown(key.default)
        for table in (LogDirectoryConfig, CleanerConfig)
        for key in rows(table).values()
    }
    differing = {name for name, default in ours.items() if brokers[name] != default}
    assert differing == {"transaction.partition.verification.enable"}
    assert {name for key in known for name in key.other_names} <= brokers.keys() | _TOPICS_OWN

    answers = [said for kind, _, said in lines if kind == "said"]
    assert len(answers) == len(questions)
    for (key, text), theirs in zip(questions, answers, strict=True):
        try:
            value = getattr(LogConfig.from_kafka({key.name: text}), known[key])
            mine = ",".join(re.split(", *", text)) if isinstance(value, frozenset) else key.shown(value)
        except ConfigError:
            mine = "refused"
        assert mine == theirs, (key.name, text)


#: A broker's keys that Kafka defines beside its own tables.
_TOPICS_OWN = {
    *("compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
    *("message.max.bytes", "log.local.retention.ms", "log.local.retention.bytes"),
    *(name for key in rows(LogConfig).values() for name in key.other_names if "cleaner" in name),
}
