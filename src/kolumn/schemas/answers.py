"""Bounds on what a schema registry answers: how large an answer may be, and how long it may take as a whole.

The client's own timeout is that of each read, so a byte now and then keeps a request alive, and it reads an answer whatever its size is.
"""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

MOST_BYTES = 16 << 20
"""Of an answer, decompressed: the largest schemas, and lists of subjects, have some MiB."""

_thread = threading.local()
"""In threads of `in_time`: ``begun``, when the present request was sent, and ``end``, when all of them have to be answered."""


def bound(client: object) -> None:
    """Let requests of a client of confluent-kafka, made within `in_time`, end where an answer passes a bound."""
    rest = getattr(client, "_rest_client", None)
    timeout = getattr(rest, "timeout", None)
    for session in (getattr(rest, "session", None), getattr(getattr(rest, "bearer_field_provider", None), "client", None)):
        hooks = getattr(session, "event_hooks", None)
        if session is not None and hooks is not None:
            session.event_hooks = {"request": [*hooks["request"], _begin], "response": [*hooks["response"], partial(_collect, timeout)]}


class _Answer(Protocol):
    _content: bytes

    def iter_bytes(self) -> Iterator[bytes]: ...


def _begin(request: object) -> None:
    _thread.begun = time.monotonic()


def _collect(timeout: float | None, response: _Answer) -> None:
    """Read an answer. What raises here closes the connection."""
    end = getattr(_thread, "end", None)
    if end is None:
        return
    if isinstance(timeout, int | float):
        end = min(end, _thread.begun + timeout)
    data = bytearray()
    for part in response.iter_bytes():
        data += part
        if len(data) > MOST_BYTES:
            raise ValueError(f"an answer has more than {MOST_BYTES >> 20} MiB")
        if time.monotonic() > end:
            raise TimeoutError(f"an answer is not whole after {time.monotonic() - _thread.begun:.0f} s")
    # As `Response.read` does.
    response._content = bytes(data)


def in_time(ask: Callable[[], Any], seconds: float, give_up: Callable[[], object]) -> Any:
    """What a call returns. After so many seconds ``give_up`` is called, and a TimeoutError raised."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def call() -> None:
        _thread.end = time.monotonic() + seconds
        try:
            results.append(ask())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True, name="kolumn-registry")
    thread.start()
    thread.join(seconds)
    if not results and not errors:
        give_up()
        raise TimeoutError(f"no whole answer within {seconds} s")
    if errors:
        raise errors[0]
    return results[0]
