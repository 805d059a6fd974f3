"""Calls with arguments that no caller should give, and what they may raise: what their docstrings name."""

from __future__ import annotations

import collections
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from tierlog.errors import TierlogError

#: Of wrong types, out of every range, empty, or text that no file name and no UTF-8 can have.
HOSTILE: Final[tuple[Any, ...]] = (
    None,
    True,
    "",
    "no such thing",
    "\udcff",
    "\0",
    b"",
    b"\xff" * 16,
    -1,
    -(2**63) - 1,
    2**31,
    2**63 - 1,
    2**63,
    2**200,
    float("nan"),
    float("inf"),
    object(),
    [],
    {},
    {None: None},
    frozenset(),
    (1, "two"),
)


def iter_hostile_calls(
    call: Callable[..., object], sound: Mapping[str, object]
) -> Iterator[tuple[str, Callable[[], object]]]:
    """The call with each of its arguments in turn replaced by each hostile value, and what it is, for messages."""
    for name in sound:
        for value in HOSTILE:
            yield f"{call.__name__}({name}={value!r})", lambda name=name, value=value: call(**{**sound, name: value})


def check_calls(call: Callable[..., object], sound: Mapping[str, object]) -> int:
    """Make all hostile calls; how many raised. Raises AssertionError as ``error_of``."""
    return sum(error_of(attempt, call, sound, what) is not None for what, attempt in iter_hostile_calls(call, sound))


def error_of(
    attempt: Callable[[], object], call: Callable[..., object], names: Collection[str], what: str
) -> Exception | None:
    """What an attempt of a call raises; None if it succeeds.

    Args:
        attempt: Makes the call; an iterator that it returns is drawn.
        call: Has the docstrings.
        names: Of the arguments.
        what: The call, for the message.

    Raises:
        AssertionError: neither the call's docstring nor its class's names the error, or the error no argument.
    """
    try:
        found = attempt()
        if isinstance(found, Iterator):
            collections.deque(found, maxlen=0)
    except Exception as error:
        fault = _fault_of(error, call, names)
        if fault:
            raise AssertionError(f"{what}: {type(error).__name__}({error}): {fault}") from error
        return error
    return None


def _fault_of(error: Exception, call: Callable[..., object], names: Collection[str]) -> str:
    """What is wrong with an error of a call; "" if it is one that a caller can expect."""
    if isinstance(error, UnicodeError) or not isinstance(error, TierlogError | ValueError | TypeError):
        return "is no error of ours"
    if isinstance(error, TypeError) and not any(name in str(error) for name in names):
        return "does not name the argument"
    text = _documentation(call)
    if not any(kind.__name__ in text for kind in type(error).__mro__ if kind not in (OSError, Exception, object)):
        return "is not in the docstring"
    return ""


def _documentation(call: Callable[..., object]) -> str:
    """The docstrings of a method, of those that it overrides, and of its classes."""
    owner = getattr(call, "__self__", None)
    if owner is None:
        return call.__doc__ or ""
    kinds = (owner if inspect.isclass(owner) else type(owner)).__mro__
    described = [*(kind.__dict__.get(call.__name__) for kind in kinds), *kinds]
    return "\n".join(getattr(each, "__doc__", None) or "" for each in described)
