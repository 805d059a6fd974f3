"""Options: what Spark's Kafka source takes means the same here, and a mistake is an error before anything is read."""

from __future__ import annotations

import pickle

import pytest

from pyspark_tierlog.options.source_options import IGNORED, ReadOptions, known_options, parse_options
from tierlog.errors import ConfigError

BASE = {"path": "s3://bucket/prefix", "subscribe": "orders"}
MODE = {"mode": "remote-preferred", "kafka.bootstrap.servers": "127.0.0.1:9092"}
BROKERS = BASE | MODE
FIELDS = {name.replace("_", ""): name for name in ReadOptions.model_fields}


def parsed(**options: str):
    return parse_options(BASE | options)[0]


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_options(options)
    return str(caught.value)


def test_names_match_without_case() -> None:
    """Spark lower-cases option names: a user's includeHeaders would be an unknown option otherwise."""
    options, warning = parse_options(
        {"PATH": "/tmp/x", "SubScribe": "a, b,", "includeheaders": "TRUE", "KAFKA.Isolation.Level": "Read_Committed"}
    )
    assert (options.subscribe, options.include_headers, options.isolation_level) == (("a", "b"), True, "read_committed")
    assert warning is None


def test_defaults_are_those_of_the_table_of_options() -> None:
    """A default that drifts from the documents changes results without a word."""
    options = parsed()
    assert options.paths == ("s3://bucket/prefix",)
    assert (options.layout, options.table, options.engine) == ("auto", "records", "auto")
    assert (options.starting_offsets, options.first_offsets(), options.ending_offsets) == (None, "earliest", "latest")
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (None, None)
    assert (options.max_trigger_delay, options.refresh_interval) == (900_000, 10_000)
    assert (options.isolation_level, options.fail_on_data_loss) == ("read_uncommitted", True)
    assert (options.max_bytes_per_partition, options.verify_checksums) == (128 << 20, True)
    assert options.min_partitions is options.max_records_per_partition is options.columns is None


@pytest.mark.parametrize(
    ("key", "near"),
    [("subscribepatern", "subscribePattern"), ("startingoffset", "startingOffsets"), ("collumns", "columns")],
)
def test_an_unknown_option_names_the_nearest(key: str, near: str) -> None:
    """A misspelt startingOffset that is ignored reads years of data instead of a day."""
    assert refusal(BASE | {key: "x"}) == f"unknown option {key!r}; did you mean {near!r}?"


def test_an_option_like_none_is_refused_too() -> None:
    """Nothing near is no reason to accept it."""
    assert refusal(BASE | {"zzzzqqq": "1"}) == "unknown option 'zzzzqqq'"


def test_options_of_the_kafka_source_are_ignored_with_one_warning() -> None:
    """A job that moves from format("kafka") must run as it is, and its user must learn what no longer counts."""
    ignored = {name.lower(): "1" for name in IGNORED} | {
        "kafka.bootstrap.servers": "b:9092",
        "kafka.sasl.password": "p",
    }
    _, warning = parse_options(BASE | ignored)
    assert warning is not None
    assert all(name in warning for name in (*IGNORED, "kafka.bootstrap.servers", "kafka.sasl.password"))
    assert "b:9092" not in warning


def test_options_that_a_table_has_no_use_for_are_named() -> None:
    """table=segments with startingOffsets gives all segments; without an error a user believes in a smaller tier."""
    _, warning = parse_options(BASE | {"table": "Segments", "startingoffsets": "earliest", "minpartitions": "3"})
    assert warning == ("options without effect here: minPartitions (table=segments), startingOffsets (table=segments)")
    assert parse_options(BASE | {"table": "batches", "startingoffsets": "earliest"})[1] is None


def test_the_kafka_source_prefers_timestamps_to_offsets() -> None:
    """Kafka's source lets startingTimestamp win; a job that sets both must read the same range here."""
    options, warning = parse_options(
        BASE | {"startingtimestamp": "5", "startingoffsets": '{"orders":{"0":7}}', "startingoffsetsbytimestamp": "{]"}
    )
    assert (options.starting_timestamp, options.starting_offsets) == (5, None)
    assert warning is not None
    assert "startingOffsets (after startingTimestamp)" in warning


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "a"}, "option path is missing"),
        ({"path": "x", "paths": '["y"]', "subscribe": "a"}, "path and paths contradict"),
        ({"paths": '["y", 3]', "subscribe": "a"}, "expected a JSON list of paths"),
        ({"paths": '["y", "y"]', "subscribe": "a"}, "twice"),
        ({"paths": '["y", "z"]', "subscribe": "a", "metadata": "m"}, "metadata says what one bucket holds"),
        (BASE | {"metadata": " , "}, "option metadata: names nothing"),
        ({"path": "x"}, "exactly one of subscribe, subscribePattern, assign is needed, got none"),
        ({"path": "x", "subscribe": "a", "assign": '{"a":[0]}'}, "got subscribe and assign"),
        ({"path": "x", "subscribe": " , "}, "option subscribe: names nothing"),
        ({"path": "x", "subscribepattern": "("}, "option subscribePattern"),
        ({"path": "x", "assign": '{"a":0}'}, 'expected e.g. {"topicA":[0,1]'),
        ({"path": "x", "assign": '{"a":[-1]}'}, "-1 is not a partition number"),
        ({"path": "x", "assign": "{}"}, "names no partition"),
        (
            BASE | {"maxtriggerdelay": "soon"},
            "option maxTriggerDelay: expected a time above 0 as 500ms",
        ),
        (BASE | {"mode": "remote"}, "option mode"),
        (BASE | {"mode": "local-only"}, "mode=local-only reads from brokers: kafka.bootstrap.servers names them"),
        (BROKERS | {"table": "batches"}, "reads records, table=batches is of the tier alone"),
        (BROKERS | {"logStartOffset": "5"}, "option logStartOffset"),
        (BROKERS | {"logStartOffset": "earliest"}, "logStartOffset is of the tier alone"),
        (BROKERS | {"columns": "offset,segment"}, "columns names segment, which mode=remote-preferred does not have"),
        ({"paths": '["y", "z"]', "subscribe": "a"} | MODE, "mode=remote-preferred reads one path"),
        (BASE | {"refreshinterval": "0s"}, "option refreshInterval: expected a time above 0"),
        (BASE | {"maxoffsetspertrigger": "0"}, "option maxOffsetsPerTrigger"),
        (BASE | {"startingoffsets": '{"orders":{"0":-3}}'}, "orders-0: offset -3"),
        (BASE | {"startingoffsets": '{"orders":{"0":1.5}}'}, "1.5 is not a 64-bit integer"),
        (BASE | {"startingoffsets": '{"orders":{"0":true}}'}, "True is not a 64-bit integer"),
        (BASE | {"startingoffsets": '{"orders":{"x":1}}'}, "'x' is not a partition number"),
        (BASE | {"startingoffsets": '{"orders":{"0":1,"00":2}}'}, "named twice"),
        (BASE | {"startingoffsets": '{"orders":{"0":1},"orders":{"0":2}}'}, "a key appears twice"),
        (BASE | {"startingoffsets": "[" * 100_000}, "expected e.g."),
        (BASE | {"startingoffsets": "1" * 5_000}, "option startingOffsets"),
        (BASE | {"endingoffsets": "earliest"}, "endingOffsets can't be earliest"),
        (BASE | {"endingoffsets": '{"orders":{"0":-2}}'}, "endingOffsets can't be earliest (-2)"),
        (
            BASE | {"startingoffsets": '{"orders":{"0":5}}', "endingoffsets": '{"orders":{"0":4}}'},
            "startingOffsets of orders-0 is 5, behind endingOffsets 4",
        ),
        (
            BASE | {"startingoffsets": '{"orders":{"0":5}}', "endingoffsets": '{"orders":{"1":9}}'},
            "name different partitions: orders-0, orders-1",
        ),
        (BASE | {"startingtimestamp": "9", "endingtimestamp": "8"}, "startingTimestamp 9 is behind endingTimestamp 8"),
        (BASE | {"startingtimestamp": "-9"}, "option startingTimestamp"),
        (BASE | {"startingoffsetsbytimestamp": '{"orders":{"0":-9}}'}, "timestamp -9 is negative"),
        (BASE | {"logstartoffset": "latest"}, "logStartOffset can't be latest"),
        (BASE | {"minpartitions": "0"}, "option minPartitions"),
        (BASE | {"maxrecordsperpartition": "many"}, "option maxRecordsPerPartition"),
        (BASE | {"maxbytesperpartition": "0"}, "option maxBytesPerPartition"),
        (BASE | {"maxbytesperpartition": "128q"}, "option maxBytesPerPartition"),
        (BASE | {"includeheaders": "perhaps"}, "option includeHeaders: expected true or false, got 'perhaps'"),
        (BASE | {"failondataloss": "0"}, "option failOnDataLoss: expected true or false, got '0'"),
        (BASE | {"layout": "avien"}, "option layout"),
        (BASE | {"table": "record"}, "option table"),
        (BASE | {"kafka.isolation.level": "serializable"}, "option kafka.isolation.level"),
        (BASE | {"engine": "spark"}, "option engine: "),
        (BASE | {"minPartitions": "11", "maxPartitions": "10"}, "minPartitions 11 is above maxPartitions 10"),
        (BASE | {"maxPartitions": "0"}, "option maxPartitions: "),
        (BASE | {"offHeapBytesPerTask": "much"}, "option offHeapBytesPerTask: "),
        (BASE | {"reportPartitioning": "perhaps"}, "option reportPartitioning: "),
        (BASE | {"includeheaders": "true", "table": "batches"}, "includeHeaders belongs to table=records"),
        (BASE | {"includeheaders": "false", "columns": "key,headers"}, "columns names headers"),
        (BASE | {"columns": "key,key"}, "names key twice"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], text: str) -> None:
    """A wrong option that slips through reads the wrong rows, or fails an hour later on an executor."""
    assert text in refusal(options)


@pytest.mark.parametrize("text", ["yes", "no", "1", "0", "on", "off", "t", "y", "f", "n", ""])
def test_a_boolean_is_true_or_false(text: str) -> None:
    """Spark's Kafka source refuses failOnDataLoss=no; a job that runs here alone cannot go back."""
    for name in ("includeheaders", "failondataloss", "verifychecksums", "pushdownpredicate", "reportpartitioning"):
        assert f"expected true or false, got {text!r}" in refusal(BASE | {name: text})
        assert getattr(parsed(**{name: " False "}), FIELDS[name]) is False


def test_a_topic_named_twice_is_read_once() -> None:
    """Spark's Kafka source takes subscribe=a,a (lists are put together by programs); its job must run here too."""
    assert parsed(subscribe="b, a,b,,a").subscribe == ("b", "a")
    options, _ = parse_options({"path": "x", "assign": '{"a":[1,0,1]}'})
    assert options.assign == {("a", 0), ("a", 1)}


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1", 1), ("134217728", 128 << 20), ("128m", 128 << 20), ("64 KiB", 64 << 10), ("1g", 1 << 30), ("2GB", 2 << 30)],
)
def test_sizes_take_sparks_suffixes(text: str, size_bytes: int) -> None:
    """128m read as 128 bytes makes a million tasks."""
    assert parsed(maxbytesperpartition=text).max_bytes_per_partition == size_bytes


def test_load_of_several_paths() -> None:
    """load([a, b]) arrives as a JSON list."""
    options, _ = parse_options({"paths": '["s3://a/b", "/c"]', "subscribepattern": " or.* "})
    assert options.paths == ("s3://a/b", "/c")
    assert options.subscribe_pattern == "or.*"


def test_keys_of_a_broker_work_unchanged() -> None:
    """rsm.config.* pasted from server.properties, and the shorter rsm.*, are the same keys."""
    long = parsed(**{"rsm.config.compression.enabled": "true"})
    short = parsed(**{"RSM.Compression.enabled": "true"})
    assert long.storage_config.keys() == short.storage_config.keys() == {"rsm.config.compression.enabled"}


def test_key_pair_ids_get_their_case_back() -> None:
    """Spark lower-cases Key.One; the manifests name Key.One, and nothing would decrypt."""
    options = parsed(
        **{
            "rsm.encryption.key.pairs": "Key.One,k2",
            "rsm.encryption.key.pairs.key.one.private.key.file": "/a",
            "rsm.encryption.key.pairs.k2.public.key.file": "/b",
        }
    )
    assert {key: value.get_secret_value() for key, value in options.storage_config.items()} == {
        "rsm.config.encryption.key.pairs": "Key.One,k2",
        "rsm.config.encryption.key.pairs.Key.One.private.key.file": "/a",
        "rsm.config.encryption.key.pairs.k2.public.key.file": "/b",
    }


def test_key_pair_ids_that_differ_only_in_case_are_refused() -> None:
    """With K and k in lower case one key's file would silently stand for the other's."""
    assert "differ only in case (K, k)" in refusal(BASE | {"rsm.encryption.key.pairs": "K, k"})


def test_one_key_in_two_forms_is_refused() -> None:
    """rsm.x and rsm.config.x with two values: either choice would be a guess."""
    text = refusal(BASE | {"rsm.chunk.size": "1", "rsm.config.chunk.size": "2"})
    assert "'rsm.config.chunk.size' is given twice" in text


def test_secrets_are_in_no_message() -> None:
    """A driver's log is read by more people than the bucket."""
    secret = "hunter2hunter2"
    options = parsed(**{"store.secret_access_key": secret, "rsm.storage.aws.secret.access.key": secret})
    assert secret not in repr(options)
    assert secret not in str(options)
    text = refusal({"path": "x", "store.secret_access_key": secret, "minpartitions": "0", "engine": "rust"})
    assert secret not in text
    assert secret not in repr(parse_options(BASE | {"kafka.sasl.jaas.config": secret})[1])


def test_security_keys_reach_the_metadatas_kafka_and_no_text() -> None:
    """Else metadata of a cluster with SASL cannot be read, or a password is printed with the options."""
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": "secret words",
        "kafka.fetch.min.bytes": "1",
    }
    options, warning = parse_options(BASE | given | {"METADATA": "broker:9092"})
    assert {name: value.get_secret_value() for name, value in options.metadata_client.items()} == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "secret words",
    }
    assert warning == "options without effect here: kafka.fetch.min.bytes"
    assert "secret words" not in repr(options)
    options, warning = parse_options(BASE | given)
    assert (dict(options.metadata_client), "kafka.sasl.jaas.config" in str(warning)) == ({}, True)


def test_every_known_option_is_documented() -> None:
    """The table of options in the map is the promise; a name that is only in the code is a secret of ours."""
    promised = {
        *("path", "mode", "layout", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets"),
        *("startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
        *("kafka.isolation.level", "includeHeaders", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss"),
        *("logStartOffset", "columns", "table", "maxBytesPerPartition", "verifyChecksums", "engine", "rsm.config.file"),
    }
    assert promised <= set(known_options())
    assert set(known_options()) - promised == {
        *IGNORED,
        *("paths", "startingOffsetsByTimestampStrategy", "pushDownPredicate", "maxPartitions"),
        *("plannerPython", "nativeDirectory", "offHeapBytesPerTask", "reportPartitioning", "headerAnswers"),
        *("metadata", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "refreshInterval"),
    }


@pytest.mark.parametrize("start", ["latest", '{"orders":{"0":-1}}'])
def test_only_a_stream_begins_at_the_end(start: str) -> None:
    """A batch read of what is to come has no record, which no user means."""
    options = parsed(startingoffsets=start)
    options.check_stream()
    with pytest.raises(ConfigError, match=r"startingOffsets can't be latest \(-1\) for a batch query"):
        options.first_offsets()


def test_what_a_batch_has_no_use_for_is_told() -> None:
    """Whoever limits a batch read by maxOffsetsPerTrigger would read all of it without a word."""
    given = {"maxoffsetspertrigger": "5", "refreshinterval": "1m"}
    assert parsed(**given).ineffective() == "options without effect here: maxOffsetsPerTrigger, refreshInterval"
    by_jar = parsed(**given).ineffective(keeps_listings=True)
    assert by_jar == "options without effect here: maxOffsetsPerTrigger"
    assert parsed().ineffective() is None


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("5", 5), ("5ms", 5), ("30 s", 30_000), ("2m", 120_000), ("2min", 120_000), ("1H", 3_600_000)],
)
def test_times_are_sparks(text: str, duration_ms: int) -> None:
    """A maxTriggerDelay of other units than there holds records back for an hour, or for no time."""
    assert parsed(maxtriggerdelay=text).max_trigger_delay == duration_ms


def test_options_survive_a_pickle() -> None:
    """They travel from load() to planning in the pickle of the data source."""
    options = parsed(startingoffsets='{"orders":{"0":3}}', endingoffsets='{"orders":{"0":-1}}')
    assert pickle.loads(pickle.dumps(options)) == options


def test_keys_of_brokers() -> None:
    """If this fails, brokers are asked without the user's keys, or the keys are shown."""
    given = BROKERS | {"kafka.sasl.jaas.config": "secret", "kafka.isolation.level": "read_committed"}
    options, warning = parse_options(given | {"groupidprefix": "g"})
    assert warning is None
    assert options.asks_brokers
    assert {name: value.get_secret_value() for name, value in options.broker_client.items()} == {
        "bootstrap.servers": "127.0.0.1:9092",
        "sasl.jaas.config": "secret",
    }
    assert options.isolation_level == "read_committed"
    assert "secret" not in repr(options)
    assert not parse_options(BASE | {"mode": " Remote-Only "})[0].asks_brokers
