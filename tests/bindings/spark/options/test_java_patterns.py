"""``subscribePattern`` reads the topics that Spark's Kafka source would read, or says why it cannot."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_tierlog.options.java_patterns import name_pattern
from pyspark_tierlog.options.source_options import parse_options
from tierlog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = (
    *("a", "b", "z", "A", "Z", "_", "-", ".", "0", "9", "aa", "ab", "aB", "Ab", "abc", "a.b", "a-b", "a_b", "a0", "0a"),
    *(
        "orders",
        "Orders",
        "ORDERS",
        "orders-eu",
        "my.orders",
        "orders_2024",
        "v1.orders.eu-west",
        "abab",
        "aab",
        "x.y.z",
    ),
)

# Patterns of every construct that Java's documentation lists.
TAKEN = (
    *(
        "orders",
        "orders.*",
        "^orders$",
        r"\Aorders\z",
        r"orders\Z",
        r"\Gorders",
        "a|b",
        "(a|b)+",
        "a?b*c+",
        "a??b*?c+?",
    ),
    *(
        "a?+b",
        "a*+b",
        "a++b",
        "a{2}",
        "a{1,}",
        "a{0,1}b",
        "a{1,2}+b",
        "(?>a|ab)c",
        "a(?=b)",
        "a(?!b)",
        "(?<=a)b",
        "(?<!a)b",
    ),
    *(
        r"(a)\1",
        r"(a)(b)\2",
        r"(?<x>a)b\k<x>",
        r"(a)\11",
        "(?:a|b)c",
        "(?i)orders",
        "(?i:O)rders",
        "o(?i)RD|E",
        "(?i-i)O",
    ),
    *(
        r"\p{Alpha}+",
        r"\p{Upper}",
        r"\p{Lower}\p{Upper}",
        r"\p{Punct}",
        r"\P{Alnum}",
        r"\pL",
        r"\PL",
        r"\p{Lu}",
        r"\p{IsL}",
    ),
    *(r"\p{IsAlphabetic}", r"\p{IsLatin}", r"\p{InBasicLatin}", r"\p{gc=Nd}", r"\p{sc=Latin}", r"\p{javaLowerCase}"),
    *(
        r"\p{ASCII}",
        r"\p{Digit}\p{XDigit}",
        r"\p{Graph}\p{Print}",
        r"\p{Blank}|\p{Cntrl}|\p{Space}",
        r"\p{Pd}",
        r"\p{Pc}",
    ),
    *(
        r"\h",
        r"\H+",
        r"\v",
        r"\V",
        r"\R",
        r"\d\D",
        r"\w+\W",
        r"\s|\S",
        r"\bb",
        r"\Bb",
        r"\Qa.b\E",
        r"\Qa.b",
        r"\Qab\E+c",
        r"\Q",
    ),
    *("[abc]", "[^abc]", "[a-z0-9]+", "[]a]", "[^]a]", "[a-]", "[-a]", "[a-c[x-z]]", "[a-z&&[^bc]]", "[a-z&&b-d]"),
    *(
        "[a-z&&[b-d]&&[^c]]",
        "[^a-c[x-z]]",
        r"[\p{L}\d._-]+",
        r"[\w&&[^\d]]",
        r"[^\W]",
        r"[\Qa-z\E]",
        "[a&b]",
        "[[a][b]]",
        "(?i)[a-c]",
    ),
    *(
        "(?i)[^a]",
        r"[\x61-\x63]",
        r"\x61",
        r"\x{61}",
        r"\u0061",
        r"\0141",
        r"\t|\n|\r|\f|\a|\e|\cA|a",
        r"\.",
        r"\-",
        "a#b| a",
        "",
    ),
    *(
        "(?s)a.b",
        "(?m)^a$",
        "(?d)a",
        "(?u)a",
        "(?U)\\w",
        "(?im)ORDERS",
        "}",
        "]",
        "a}",
        "()",
        "a||b",
        "(|a)b",
        "(?iu)order",
        "ä|a",
    ),
    *("__consumer_offsets", "consumer", r"[a-z&&[^b]&&[^c]]+", "(a*)*b", "(a|ab)(c|bcd)", "^(?!a).*$", "(?=.*\\d).*s"),
)
REFUSED = (
    *(
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "[]",
        "*a",
        "a**",
        "a{2}{3}",
        "{2}",
        "a{,3}",
        "a{x}",
        "a{2",
        "a{3,2}",
        "+",
        "?a",
        "(?P<x>a)",
    ),
    *(
        "(?x)a b",
        "(?#c)a",
        "(?(1)a)",
        "(?<1>a)",
        "(?<x>a)(?<x>b)",
        r"\k<x>",
        r"\1",
        r"(a)\2",
        r"(a\1)",
        r"\y",
        r"\N{DIGIT ONE}",
    ),
    *(
        r"\X",
        r"\b{g}",
        r"\p{IsGreek}",
        r"\p{InGreek}",
        r"\p{Nope}",
        r"\p{alpha}",
        r"\pX",
        r"(?i)\p{Lower}",
        r"(?i)\p{Lu}",
        "[b-a]",
    ),
    *(
        "[a&&]",
        "[&&a]",
        "[a&&^b]",
        "[a&&[b]c]",
        r"[\b]",
        r"[\1]",
        r"[\d-z]",
        r"[a-\d]",
        "(?<=a+)b",
        r"\x6",
        r"\u61",
        r"\08",
        "\\",
    ),
    *("(?<xa)", "(?i", "(?q)a", r"\k<", r"\p{L", "(?iu)ä"),
)


@pytest.fixture
def java_finds(spark: SparkSession):
    """``java_finds(pattern)``: the names in which Java finds it; None if Java refuses the pattern."""
    regex = spark._jvm.java.util.regex.Pattern

    @functools.cache
    def find(pattern: str) -> list[str] | None:
        try:
            compiled = regex.compile(pattern)
        except Exception as error:
            if "PatternSyntaxException" in str(error) or "IllegalArgument" in str(error):
                return None
            raise
        return [name for name in NAMES if compiled.matcher(name).find()]

    return find


def found(pattern: str) -> list[str] | None:
    """The same of ours."""
    try:
        python = re.compile(name_pattern(pattern))
    except ValueError:
        return None
    return [name for name in NAMES if python.fullmatch(name)]


@pytest.mark.spark
@pytest.mark.parametrize("pattern", TAKEN)
def test_a_pattern_finds_what_java_finds(java_finds, pattern: str) -> None:
    """A job that moves here from the Kafka source would read other topics, and nobody would be told."""
    wanted = java_finds(pattern)
    assert wanted is not None
    assert found(pattern) == wanted


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_cannot_be_said_is_refused(pattern: str) -> None:
    """A construct that is half understood reads the wrong topics."""
    with pytest.raises(ConfigError, match=r"option subscribePattern: ") as caught:
        parse_options({"path": "x", "subscribePattern": pattern})
    assert repr(pattern) in str(caught.value)


PIECES = st.sampled_from(
    [
        *(
            "a",
            "b",
            "A",
            "orders",
            ".",
            "0",
            "-",
            "_",
            "^",
            "$",
            "|",
            "(",
            ")",
            "(?:",
            "(?i)",
            "(?i:",
            "(?=",
            "(?!",
            "(?>",
        ),
        *(
            "*",
            "+",
            "?",
            "{2}",
            "{1,2}",
            "[",
            "]",
            "[^",
            "&&",
            "a-c",
            r"\d",
            r"\w",
            r"\W",
            r"\p{Alpha}",
            r"\P{L}",
            r"\h",
            r"\b",
        ),
        *(
            r"\Q",
            r"\E",
            r"\1",
            r"\A",
            r"\Z",
            r"\x61",
            "(?<n>",
            r"\k<n>",
            "&",
            "}",
            "{",
            ",",
            "\\",
            " ",
            "(?<=a)",
            "(?-i)",
        ),
    ]
)


@pytest.mark.spark
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=8).map("".join))
def test_any_pattern_is_javas_or_refused(java_finds, pattern: str) -> None:
    """Patterns are put together by programs: the odd one must not mean something else."""
    ours = found(pattern)
    assert ours is None or ours == java_finds(pattern)


def test_internal_topics_are_in_no_pattern() -> None:
    """Kafka's admin client does not list them: ``.*`` over a broker's disk would read groups' offsets too."""
    python = re.compile(name_pattern(".*"))
    assert not any(python.fullmatch(f"__{name}") for name in ("consumer_offsets", "transaction_state"))
    assert python.fullmatch("__consumer_offsets2")
