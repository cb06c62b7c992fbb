"""The bytes of a request, and secret headers that can and can't be sent."""

import pytest

from harness.errors import UsageError
from harness.wire.request import http_request, sendable_headers


def test_a_request_is_these_bytes() -> None:
    assert http_request("/v1/completions", b'{"a":1}', host="127.0.0.1", port=8000, request_id="bench-x") == (
        b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: b70-bench\r\n"
        b"Accept: text/event-stream\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\n"
        b"Content-Length: 7\r\nConnection: close\r\n"
        b'X-Request-Id: bench-x\r\n\r\n{"a":1}'
    )


def test_what_is_left_out_and_what_is_asked_otherwise() -> None:
    data = http_request("/x", b"", host="::1", port=1, accept="application/json")
    assert b"Host: [::1]:1\r\n" in data and b"Accept: application/json\r\n" in data
    assert b"X-Request-Id" not in data and data.endswith(b"Content-Length: 0\r\nConnection: close\r\n\r\n")


GOOD = [("Authorization", "Bearer abc"), ("X-Key_1.~", "a b"), ("!#$%&'*+-.^_`|", "")]


def test_headers_that_can_be_sent_come_back_as_they_are() -> None:
    assert sendable_headers(GOOD) == GOOD
    assert sendable_headers(()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "v"),
        ("Two words", "v"),
        ("Colon:", "v"),
        ("Na\nme", "v"),
        ("Umlaut-ä", "v"),
        ("Name", "two\r\nlines"),
        ("Name", "ä"),
        ("Name", "\x7f"),
        ("Name", " v"),
        ("Name", "v "),
        ("Name", "v\n"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_without_a_word_of_it(name: str, value: str) -> None:
    with pytest.raises(UsageError, match="a secret header can't be sent") as refused:
        sendable_headers([*GOOD, (name, value)])
    assert "Bearer" not in str(refused.value) and "lines" not in str(refused.value)
