"""Download of one file over https, resumable. Imports `errors` and `catalog`'s rule of which addresses are allowed.

Owns the `.part` file: bytes arrive there, and it becomes the file only when size and sha256 are those of the catalog.
It stays after a broken transfer, so that the next run asks for the rest alone. Never follows a redirect to an address
that would not have been allowed in the first place, and reads no scheme but http(s).
"""

from __future__ import annotations

import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from assistant.errors import FetchFailed
from assistant.model_store.catalog import url_is_allowed
from assistant.model_store.manifest import sha256_of

_BLOCK = 1 << 18
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")


class _Broken(Exception):
    """The transfer ended early; worth another try from where it stopped."""


class _Unreached(_Broken):
    """Nobody was there to ask."""


class _Restart(Exception):
    """What lies in the `.part` file cannot be continued."""


class _Other(Exception):
    """It is another file; the text says how that shows."""


class Https:
    """`tries` attempts per file; `pause(seconds)` between them is a seam for tests."""

    def __init__(
        self, *, timeout_s: float = 30, tries: int = 4, pause: Callable[[float], None] = time.sleep, agent: str = ""
    ) -> None:
        self._timeout_s = timeout_s
        self._tries = tries
        self._pause = pause
        self._agent = agent or "local-voice-assistant"

    def download(
        self,
        url: str,
        target: Path,
        *,
        size: int,
        sha256: str,
        update: Callable[[int, int], None] = lambda d, t: None,
        advice: str = "",
    ) -> None:
        """Puts the file at `target` by way of `target`.part, which stays if it can be resumed. `advice`: what to do
        when another file comes, of which nothing is kept. Raises `FetchFailed`."""
        if not url_is_allowed(url):
            raise FetchFailed(f"{url} is not an https address")
        part = target.with_name(target.name + ".part")
        target.parent.mkdir(parents=True, exist_ok=True)
        resumed = part.exists()
        try:
            why = self._fill(url, part, size, update)
        except _Other as error:
            part.unlink(missing_ok=True)
            raise _not_the_file(url, str(error), advice) from None
        if why is not None:
            said = f"{_shown(url)} did not arrive whole: {why}. Check the network"
            if isinstance(why, _Unreached):
                said = (
                    f"{_shown(url)} cannot be had: its server cannot be reached ({why}). Go online, or check name"
                    " service and proxy (https_proxy)"
                )
            kept = part.stat().st_size if part.exists() else 0
            rest = f" {kept:,} of {size:,} bytes are kept, and the next run goes on from there." if kept else ""
            raise FetchFailed(f"{said}, and run this again.{rest}")
        actual = sha256_of(part)
        if actual != sha256:
            part.unlink()
            if resumed:  # the beginning was another run's, perhaps of another file: once more from the start
                return self.download(url, target, size=size, sha256=sha256, update=update, advice=advice)
            raise _not_the_file(url, f"its sha256 is {actual}, expected {sha256}", advice)
        part.replace(target)

    def _fill(self, url: str, part: Path, size: int, update: Callable[[int, int], None]) -> Exception | None:
        """Appends until the part has `size` bytes. Gives the reason why it has not, or None."""
        why: Exception = _Broken("no attempt was made")
        for attempt in range(self._tries):
            if attempt:
                self._pause(min(2.0**attempt / 2, 8.0))
            have = part.stat().st_size if part.exists() else 0
            if have > size:
                part.unlink()
                have = 0
            if have == size and part.exists():
                return None
            try:
                self._transfer(url, part, have, size, update)
                return None
            except _Restart as error:
                part.unlink(missing_ok=True)
                why = error
            except _Broken as error:
                why = error
        return why

    def _transfer(self, url: str, part: Path, have: int, size: int, update: Callable[[int, int], None]) -> None:
        headers = {"User-Agent": self._agent, "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - url_is_allowed has seen it
        try:
            with _opener(url).open(request, timeout=self._timeout_s) as response:
                start = _start_of(response, have)
                _check_length(url, response, start, size)
                with part.open("r+b" if start else "wb") as file:
                    file.seek(start)
                    _receive(response, file, start, size, update)
        except urllib.error.HTTPError as error:
            self._refused(url, error, have)
        except urllib.error.URLError as error:  # before the first byte
            raise _Unreached(getattr(error.reason, "strerror", None) or str(error.reason)) from None
        except (http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
            raise _Broken(str(getattr(error, "reason", None) or error) or type(error).__name__) from None

    def _refused(self, url: str, error: urllib.error.HTTPError, have: int) -> None:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            raise _Restart("the server could not continue it") from None
        if error.code >= 500 or error.code in (http.client.REQUEST_TIMEOUT, http.client.TOO_MANY_REQUESTS):
            raise _Broken(f"the server answered {error.code} {error.reason}") from None
        raise FetchFailed(f"{_shown(url)} cannot be had: the server answered {error.code} {error.reason}") from None


def _not_the_file(url: str, why: str, advice: str) -> FetchFailed:
    return FetchFailed(
        f"{_shown(url)} is not the file that the catalog knows: {why}. Nothing of it was kept. The publisher changed "
        f"it, or something on the way did. {advice}".rstrip()
    )


def _start_of(response: Any, have: int) -> int:
    """Where in the file the body begins: a server that ignores Range sends everything."""
    if response.status != http.client.PARTIAL_CONTENT:
        return 0
    found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if found is None or int(found[1]) != have:
        raise _Restart("the server sent another part than was asked for")
    return have


def _check_length(url: str, response: Any, start: int, size: int) -> None:
    length = response.headers.get("Content-Length", "")
    if length.isascii() and length.isdigit() and start + int(length) != size:
        raise _Other(f"it has {start + int(length):,} bytes, expected {size:,}")


def _receive(response: Any, file: IO[bytes], start: int, size: int, update: Callable[[int, int], None]) -> None:
    done = start
    while block := response.read(_BLOCK):
        done += len(block)
        if done > size:
            raise _Restart(f"the server sent more than {size:,} bytes")
        file.write(block)
        update(done, size)
    if done < size:
        raise _Broken(f"the connection ended after {done:,} bytes")


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str) -> Any:
        if not url_is_allowed(newurl):
            raise FetchFailed(f"{_shown(req.full_url)} redirects to {_shown(newurl)}, which is not an https address")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(url: str) -> urllib.request.OpenerDirector:
    """http(s) alone (no file:, no ftp:), with the user's proxies except for this machine itself."""
    opener = urllib.request.OpenerDirector()
    proxies: dict[str, str] | None = {} if urlsplit(url).scheme == "http" else None
    for handler in (
        urllib.request.ProxyHandler(proxies), urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(), _Redirects(),
        urllib.request.HTTPErrorProcessor(), urllib.request.HTTPDefaultErrorHandler(),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener


def _shown(url: str) -> str:
    """Without user, password and query: fit for a message."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
