"""Messages that are wrong in some way, for the hostile benchmark and its tests. Imports `framing` for its bounds."""

from __future__ import annotations

import json
import random
from typing import Any

from assistant.api import framing


def header(kind: str, data: Any = None, **more: Any) -> bytes:
    return json.dumps({"v": 1, "id": "i", "type": kind, "data": data or {}} | more).encode()


def hostile(dice: random.Random, socket_name: str) -> list[bytes]:
    """The frames of a message that is wrong in some way; none is so large that it ends the connection."""
    good = header("ask", {"text": "hello", "age_ms": 1})
    deep = dice.randrange(1000, 20_000)
    match dice.randrange(12):
        case 0:
            return [dice.randbytes(dice.randrange(1, 300)) for _ in range(dice.randrange(1, 4))]
        case 1:
            return [good[: dice.randrange(1, len(good))]]
        case 2:
            if socket_name == "control":
                return [header("ping"), *[bytes(40 * 1024)] * 2]
            return [header("ask", {"text": "x" * dice.randrange(65_600, 70_000)})]
        case 3:
            return [b"[" * deep + b"]" * deep]
        case 4:
            return [b'{"v":1,"id":"i","type":"ask","data":' + b'{"a":' * 5000 + b"1" + b"}" * 5001]
        case 5:
            number = dice.choice([b"NaN", b"-Infinity", b"1e999", b"-0.0e-", b"9" * 400, b"true", b"[]"])
            return [good.replace(b'"age_ms": 1', b'"age_ms": ' + number)]
        case 6:
            broken = dice.choice([b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
            return [good.replace(b"hello", broken)]
        case 7:
            return [header(dice.choice(["ask", "load", "ping", "volume", "nothing", ""]), {"none": None})]
        case 8:
            return [
                header("ask"),
                *[bytes(3)] * dice.choice([1, 3, 7, framing.MAX_FRAMES]),
            ]  # half a sample, or too many
        case 9:
            value = dice.choice([None, 0, 2, "1", 1e300, [1], 2**70])
            return [header("ask", {"text": "hello"}, v=value)]
        case 10:
            return [header("ask", {"text": "hello"}, id=dice.choice(["", "i" * 129, "\0" * 200, 5, None]))]
        case _:
            mutated = bytearray(header("mute", {"on": 3}))
            mutated[dice.randrange(len(mutated))] = dice.randrange(256)
            return [bytes(mutated)]
