"""A token source with a known schedule: a file of its own, so that any Python 3.9 can run it, also inside an image.

``python source.py PORT TTFT_MS GAP_MS IDS [HOST]`` streams like a completions endpoint. Event i of a request is due at
arrival + ttft + i x gap, arrival being the kernel's receive time of the request, and carries ``created_ns``, the wall
clock just before its own write. Several requests share one thread; ``max_tokens`` of the request counts events.
"""

import heapq
import json
import re
import select
import socket
import struct
import sys
import time
from typing import Any, Dict, List, Tuple

SO_TIMESTAMPNS = 35
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(index: int, ids: int, last: bool) -> bytes:
    """One completion chunk with its own write time."""
    finish = '"length"' if last else "null"
    prompt = "[1]" if index == 0 else "null"
    return (
        f'data: {{"id":"cmpl-selftest","object":"text_completion","created_ns":{time.time_ns()},"model":"selftest",'
        f'"choices":[{{"index":0,"text":" x","finish_reason":{finish},"prompt_token_ids":{prompt},'
        f'"token_ids":{json.dumps([index * ids + k + 10 for k in range(ids)])}}}]}}\n\n'
    ).encode()


def tail(count: int) -> bytes:
    """Usage and the end."""
    usage: Dict[str, Any] = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1}
    usage["prompt_tokens_details"] = {"cached_tokens": 0}
    body = json.dumps({"id": "cmpl-selftest", "model": "selftest", "choices": [], "usage": usage})
    return chunk(f"data: {body}\n\n".encode()) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Stream:
    """One request being answered."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.data, self.index, self.events = sock, b"", 0, 0


def main() -> None:
    """Serve until killed, or until whoever holds the other end of a pipe at standard input is gone."""
    port, ttft, gap, ids = int(sys.argv[1]), float(sys.argv[2]) * 1e6, float(sys.argv[3]) * 1e6, int(sys.argv[4])
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((sys.argv[5] if len(sys.argv) > 5 else "127.0.0.1", port))
    listener.listen(1024)
    listener.setblocking(False)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    poll = select.epoll()
    streams: Dict[int, Stream] = {}
    due: List[Tuple[int, int, Stream]] = []
    poll.register(listener.fileno(), select.EPOLLIN)
    try:
        poll.register(0, 0)  # tells a hang-up only
    except OSError:
        pass  # no pipe and no terminal: a file, or nothing at all, as in a container
    while True:
        wait = max(0.0, (due[0][0] - time.time_ns()) / 1e9) if due else None
        # select() keeps microseconds where epoll's own timeout would round to milliseconds.
        select.select([poll.fileno()], [], [], wait)
        for number, _ in poll.poll(0):
            if number == 0:
                return
            if number == listener.fileno():
                accept(listener, poll, streams)
            elif number in streams:
                take(streams[number], streams, poll, due, ttft)
        while due and due[0][0] <= time.time_ns():
            at, number, stream = heapq.heappop(due)
            if streams.get(number) is stream:
                step(stream, at, number, streams, poll, due, gap, ids)


def accept(listener: socket.socket, poll: select.epoll, streams: Dict[int, Stream]) -> None:
    """Take every waiting connection."""
    while True:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        streams[sock.fileno()] = Stream(sock)
        poll.register(sock.fileno(), select.EPOLLIN)


def take(
    stream: Stream, streams: Dict[int, Stream], poll: select.epoll, due: List[Tuple[int, int, Stream]], ttft: float
) -> None:
    """Read a request; the whole of it starts the answer."""
    number = stream.sock.fileno()
    try:
        data, ancillary, _, _ = stream.sock.recvmsg(65536, socket.CMSG_SPACE(16))
    except OSError:
        data, ancillary = b"", []
    if not data:
        drop(number, streams, poll)
        return
    stream.data += data
    head, end, body = stream.data.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    if not end or (length and len(body) < int(length[1])):
        return
    if head.startswith(b"GET"):
        stream.sock.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        drop(number, streams, poll)
        return
    arrived = time.time_ns()
    if ancillary:
        seconds, nanoseconds = struct.unpack_from("@ll", ancillary[0][2])
        arrived = seconds * 1_000_000_000 + nanoseconds
    asked = re.search(rb'"max_tokens": *(\d+)', body)
    stream.events, stream.data = int(asked[1]) if asked else 16, b""
    stream.sock.send(HEAD)
    heapq.heappush(due, (arrived + int(ttft), number, stream))


def step(
    stream: Stream,
    at: int,
    number: int,
    streams: Dict[int, Stream],
    poll: select.epoll,
    due: List[Tuple[int, int, Stream]],
    gap: float,
    ids: int,
) -> None:
    """Send the event that is due."""
    last = stream.index + 1 == stream.events
    try:
        stream.sock.send(chunk(event(stream.index, ids, last)))
        if last:
            stream.sock.send(tail(stream.events * ids))
    except OSError:
        drop(number, streams, poll)
        return
    stream.index += 1
    if last:
        drop(number, streams, poll)
        return
    heapq.heappush(due, (at + int(gap), number, stream))


def drop(number: int, streams: Dict[int, Stream], poll: select.epoll) -> None:
    """Close a connection."""
    stream = streams.pop(number)
    poll.unregister(number)
    stream.sock.close()


if __name__ == "__main__":
    main()
