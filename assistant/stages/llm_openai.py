"""Answers by an OpenAI-compatible server (llama-server, Ollama, vLLM): conversations go there, text comes back.

POST <url>/chat/completions with `stream: true` → server-sent events, each `data: {...}`, the last `data: [DONE]`.
Standard library alone. The key is read for each request, sent in its header and found nowhere else: neither in the
settings' own values nor in a message.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from assistant.errors import ConfigError, RemoteFailed
from assistant.messages import LlmDelta, LlmDone, LlmRequest, Progress
from assistant.stages.base import EngineConfig, EngineInfo
from assistant.stages.pacing import Together
from assistant.stages.remote import (
    BROKE_OFF,
    GARBAGE,
    HTTP_PORTS,
    REFUSED,
    Address,
    Link,
    address_of,
    clean,
    options_of,
    results,
)

_MAX_LINE = 256 << 10
"""Bytes of an event, and of a whole answer that is not streamed."""
_SPOKEN_PER_S = 3
"""Tokens. A server that writes more slowly leaves gaps in what is said."""
_MAX_TOKEN_CHARS = 64
"""Of a token; no vocabulary has longer ones of text."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    """With the version: http://host:port/v1."""
    deadline_s: float = 10
    """To the first text, and between texts."""
    name: str = ""
    """The model that the server shall use; empty = its own choice."""
    api_key_file: str = ""
    api_key_env: str = ""
    """Name of the environment variable that holds the key."""
    ca_file: str = ""
    """Certificates to trust instead of the system's."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event of the stream says."""

    text: str = ""
    reason: str = ""
    """Why the answer ended; empty = it goes on."""
    prompt_tokens: int = 0


class OpenAiLlm:
    """`Engine[LlmRequest, Progress | LlmDelta | LlmDone]`."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises `ConfigError`."""
        self._model = config.model
        self._options = options_of(config.options, Options, "llm")
        self._where = address_of(self._options.url, "stages.llm.url", HTTP_PORTS)

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(name="openai", model=self._model, streaming=True)

    def load(self) -> None:
        """Nothing but a look at the key. Raises `ConfigError`."""
        self._key()

    def run(self, request: LlmRequest) -> Iterator[Progress | LlmDelta | LlmDone]:
        """Raises `RemoteFailed`, `ConfigError`. Settings that the API does not know (top_k, min_p, the repetition
        penalty) stay here."""
        body, headers = json.dumps(asked(request, self._options.name)).encode(), self._headers()
        started = time.monotonic()
        first, tokens, prompt_tokens, chars = 0.0, 0, 0, 0
        reason: Literal["stop", "length"] = "stop"
        together = Together()
        spoken_s = request.max_new_tokens / _SPOKEN_PER_S
        work = functools.partial(self._pieces, body=body, headers=headers)
        for piece in results(work, self._where, self._options.deadline_s, spoken_s):
            if piece is None:
                yield together.take() or Progress(done=tokens, total=request.max_new_tokens)
                continue
            prompt_tokens = max(prompt_tokens, piece.prompt_tokens)
            if piece.text:
                first = first or time.monotonic()
                tokens, chars = tokens + 1, chars + len(piece.text)
                if together.add(piece.text) and (told := together.take()):
                    yield told
            too_much = tokens > request.max_new_tokens or chars > request.max_new_tokens * _MAX_TOKEN_CHARS
            if piece.reason == "length" or too_much:
                reason = "length"
                break
        if told := together.take():
            yield told
        ended = time.monotonic()
        first = first or ended
        yield LlmDone(
            reason=reason, prompt_tokens=prompt_tokens, new_tokens=tokens,
            prefill_ms=(first - started) * 1000, decode_ms=(ended - first) * 1000,
        )  # fmt: skip

    def close(self) -> None:
        pass

    # --- the request ------------------------------------------------------------------------------------------------
    def _headers(self) -> dict[str, str]:
        key = self._key()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream", "Connection": "close"}
        return {**headers, "Authorization": f"Bearer {key}"} if key else headers

    def _key(self) -> str:
        """Raises `ConfigError`, never with the key in it."""
        options = self._options
        key = ""
        if options.api_key_file:
            try:
                key = Path(options.api_key_file).expanduser().read_text("utf-8").strip()
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "no text"
                raise ConfigError(f"stages.llm.api_key_file {options.api_key_file}: {reason}") from None
        elif options.api_key_env:
            key = os.environ.get(options.api_key_env, "").strip()
        if (options.api_key_file or options.api_key_env) and not key:
            raise ConfigError("the API key of stages.llm is empty; see stages.llm.api_key_file and api_key_env")
        if not (key.isascii() and all(letter.isprintable() for letter in key)):
            raise ConfigError("the API key of stages.llm is no single line of plain letters")
        return key

    def _pieces(self, link: Link, body: bytes, headers: dict[str, str]) -> Iterator[Piece]:
        """Blocks. What the server says, to the end of its answer."""
        connection = link.keep(http.client.HTTPConnection(link.where.host, link.where.port))
        connection.sock = self._connected(link)
        try:
            connection.request("POST", f"{link.where.path}/chat/completions", body, headers)
            response = link.keep(connection.getresponse())
            if response.status != 200:
                raise refusal(link.where, response.status, response.getheader("Retry-After") or "")
            if "json" in (response.getheader("Content-Type") or ""):  # a server that does not stream
                piece = piece_of(response.read(_MAX_LINE + 1)[:_MAX_LINE], link.where)
                yield Piece(piece.text, piece.reason or "stop", piece.prompt_tokens)
                return
            yield from stream_of(response, link.where)
        except (http.client.RemoteDisconnected, http.client.IncompleteRead):
            raise RemoteFailed(f"{link.where} closed the connection before it had answered", code=BROKE_OFF) from None
        except http.client.HTTPException as error:
            raise RemoteFailed(f"{link.where} is no HTTP server: {type(error).__name__}", code=GARBAGE) from None

    def _connected(self, link: Link) -> Any:
        sock = link.connect()
        if link.where.scheme != "https":
            return sock
        try:
            context = ssl.create_default_context(cafile=self._options.ca_file or None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"stages.llm.ca_file {self._options.ca_file}: {error}") from None
        wrapped = context.wrap_socket(sock, server_hostname=link.where.host, do_handshake_on_connect=False)
        link.hold(wrapped)
        link.connected = False  # a certificate that is not trusted is no connection
        wrapped.do_handshake()
        link.connected = True
        return wrapped


def asked(request: LlmRequest, model: str) -> dict[str, Any]:
    """The body of a request. Pure."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "messages": [{"role": turn.role, "content": turn.content} for turn in request.turns],
        "stream": True,
        "max_tokens": request.max_new_tokens,
        "temperature": sampling.temperature,
    }
    if model:
        body["model"] = model
    if sampling.temperature > 0:
        body["top_p"] = sampling.top_p
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if request.stop:
        body["stop"] = list(request.stop)
    return body


def refusal(where: Address, status: int, retry_after: str = "") -> RemoteFailed:
    """What another status than 200 means to a user; nothing of what the server wrote, which may repeat the key."""
    if status in (401, 403):
        what = f"does not let us in ({status}); set stages.llm.api_key_file"
    elif status == 404:
        what = "has no such address or model (404); look at stages.llm.url (with /v1) and stages.llm.remote_model"
    elif status == 429:
        what = "is busy (429)" + (f", for {retry_after} s" if retry_after.isdigit() and len(retry_after) < 6 else "")
    elif 300 <= status < 400:
        what = f"is elsewhere ({status}); write its own address into stages.llm.url"
    else:
        what = f"refused the request ({status})"
    return RemoteFailed(f"{where} {what}", code=REFUSED)


def stream_of(response: http.client.HTTPResponse, where: Address) -> Iterator[Piece]:
    """The events of a stream, up to the one that ends it. Raises `RemoteFailed`, `OSError`."""
    while line := response.readline(_MAX_LINE + 1):
        if len(line) > _MAX_LINE:
            raise RemoteFailed(f"{where} sent a line without an end", code=GARBAGE)
        field, _, value = line.strip().partition(b":")
        if field != b"data":  # comments, names of events, empty lines
            continue
        if value.strip() == b"[DONE]":
            return
        piece = piece_of(value, where)
        if piece.text or piece.reason:  # what says nothing is no result: a server that thinks aloud may be too late
            yield piece
        if piece.reason:
            return
    raise RemoteFailed(f"{where} closed the connection in the middle of its answer", code=BROKE_OFF)


def piece_of(data: bytes, where: Address) -> Piece:
    """Raises `RemoteFailed`, also for the server's own error."""
    try:
        found = json.loads(data)
        if found.get("error"):
            raise RemoteFailed(f"{where} could not answer", code=REFUSED)
        usage = found.get("usage") or {}
        prompt = usage.get("prompt_tokens", 0)
        choice = (found.get("choices") or [{}])[0]
        text = (choice.get("delta") or choice.get("message") or {}).get("content") or ""
        reason = choice.get("finish_reason") or ""
        if not (isinstance(text, str) and isinstance(reason, str)):
            raise TypeError
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        raise RemoteFailed(f"{where} sent what is no answer of an OpenAI-compatible server", code=GARBAGE) from None
    tokens = prompt if isinstance(prompt, int) and 0 <= prompt < 1 << 31 else 0
    return Piece(clean(text, _MAX_LINE, where), reason, tokens)
