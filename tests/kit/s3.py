"""Servers of S3 on this machine, and a proxy to them that fails, or waits, as networks do."""

import http.client
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from kit.java import class_path, free_port, running

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "secRET", "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip
"""The environment that the ecosystem's clients look at."""


@contextmanager
def server() -> Iterator[str]:
    """Start moto's server; the value is its address, ``127.0.0.1:<port>``."""
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            line = next(line for line in process.stdout if "Running on" in line)
            # Its log of requests would fill the pipe.
            Thread(target=lambda: [None for _ in process.stdout or ()], daemon=True).start()
            yield f"127.0.0.1:{line.strip().rpartition(':')[2]}"
        finally:
            process.terminate()


S3PROXY = """s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={AWS_ACCESS_KEY_ID}
s3proxy.credential={AWS_SECRET_ACCESS_KEY}
s3proxy.endpoint=http://127.0.0.1:{port}
jclouds.provider=transient
jclouds.identity=test
jclouds.credential=test
jclouds.endpoint=http://127.0.0.1
"""


@contextmanager
def java_server(home: Path) -> Iterator[str]:
    """Start S3Proxy, for a second opinion. It is stricter and older than moto: it knows no checksums at the end of a body."""
    if not all(map(shutil.which, ("java", "mvn"))):
        pytest.skip("needs Java and Maven on the PATH")
    classes = class_path("tests/foreign/s3proxy", "tests/s3proxy")
    port, settings = free_port(), home / "s3proxy.properties"
    settings.write_text(S3PROXY.format(port=port, **CREDENTIALS))
    command = ["java", "-Xmx512m", "-cp", classes, "org.gaul.s3proxy.Main", "--properties", str(settings)]
    with running(command, port, home / "output"):
        yield f"127.0.0.1:{port}"


class Proxy(ThreadingHTTPServer):
    """Passes requests on to an address, each after ``delay`` seconds.

    Every ``fails``-th one fails: in turns by status 503, by a connection that is reset, and by one that ends within the answer, so that the
    request was obeyed.
    """

    daemon_threads = True

    def __init__(self, to: str, fails: int = 0, delay: float = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.to, self.fails, self.delay = to, fails, delay
        self.numbers, self.failed, self.under_way, self.most = count(1), 0, 0, 0
        self.requests: list[tuple[str, str]] = []
        self.down_until = 0.0
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def kill(self, seconds: float) -> None:
        """Answer nothing for a time: connections end, as those of a server that was killed and starts again."""
        self.down_until = time.monotonic() + seconds

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed."""

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def handle_any(self) -> None:
        proxy = self.server
        if time.monotonic() < proxy.down_until:
            self.close_connection = True
            return
        number = next(proxy.numbers)
        proxy.requests.append((self.command, self.path))
        body = self._body()
        proxy.under_way += 1
        proxy.most = max(proxy.most, proxy.under_way)
        time.sleep(proxy.delay)
        proxy.under_way -= 1
        fails = bool(proxy.fails) and number % proxy.fails == 0
        proxy.failed += fails
        if fails and number // proxy.fails % 3 == 2:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        if fails and number // proxy.fails % 3:
            self.close_connection = True
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        connection = http.client.HTTPConnection(proxy.to)
        given = {
            name: value for name, value in self.headers.items() if name.lower() not in ("content-length", "expect", "transfer-encoding")
        }
        connection.request(self.command, self.path, body, given)
        answer = connection.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "date", "server", "transfer-encoding"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length)
        self.end_headers()
        if fails:
            self.close_connection = True
            data = data[: len(data) // 2]
        self.wfile.write(data)
        connection.close()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Nothing is printed."""
