"""Small real publishers for the store's tests: a wheel in a folder for pip, and an HTTP server on this machine."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def build_wheel(folder: Path, package: str, version: str, members: Mapping[str, bytes]) -> Path:
    """A wheel that pip accepts, holding the members."""
    stem = f"{package.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    files = {
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return path


def pip_environment(folder: Path) -> dict[str, str]:
    """What pip is told when the folder is all that its user has configured."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    return {**ours, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}


class Publisher:
    """Serves byte strings by path; what it does wrong is set by its attributes. Remembers what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.statuses: list[int] = []
        """Answers given before anything else, one per request."""
        self.cut_after: list[int] = []
        """Bytes of the body after which the connection is closed, one per request."""
        self.ignore_range = False
        self.wrong_range = False
        self.length: int | None = None
        """Claimed instead of the true Content-Length; 0 = none is sent."""
        self.asked: list[tuple[str, str | None]] = []
        """(path, Range header) of each request."""
        self.url = ""


@contextmanager
def publisher() -> Iterator[Publisher]:
    shop = Publisher()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(shop))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    shop.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield shop
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(shop: Publisher) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            shop.asked.append((self.path, asked))
            if shop.statuses:
                self.send_error(shop.statuses.pop(0))
            elif self.path in shop.redirects:
                self.send_response(302)
                self.send_header("Location", shop.redirects[self.path])
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif self.path not in shop.files:
                self.send_error(404)
            else:
                self._send(shop.files[self.path], asked)

        def _send(self, data: bytes, asked: str | None) -> None:
            found = re.fullmatch(r"bytes=(\d+)-", asked or "")
            start = int(found[1]) if found and not shop.ignore_range else 0
            if found and start >= len(data):
                self.send_error(416)
                return
            if found and not shop.ignore_range:
                shown = start + 1 if shop.wrong_range else start
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {shown}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            body = data[start:]
            if shop.length != 0:
                self.send_header("Content-Length", str(shop.length or len(body)))
            self.end_headers()
            cut = shop.cut_after.pop(0) if shop.cut_after else len(body)
            with suppress(ConnectionError):  # a client that has seen enough hangs up
                self.wfile.write(body[:cut])

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    return Handler
