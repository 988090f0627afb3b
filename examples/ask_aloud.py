"""Asks while somebody "speaks": `python ask_aloud.py QUESTION.wav ANSWER.wav`. The asynchronous client.

The recording (16-bit, mono, 16 kHz) is sent piece by piece, as a microphone would give it; the daemon hears by itself
when the speaker has finished.
"""

import asyncio
import sys
import wave
from collections.abc import AsyncIterator

from assistant.api import wire
from assistant.api.async_client import AsyncClient
from assistant.errors import AssistantError

PIECE = 3200  # bytes: a tenth of a second


def recorded(path: str) -> bytes:
    with wave.open(path) as recording:
        if recording.getparams()[:3] != (1, 2, 16_000):
            raise wave.Error("16-bit samples, mono, 16 kHz are needed")
        return bytes(recording.readframes(recording.getnframes()))


async def microphone(sound: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(sound), PIECE):
        yield sound[at : at + PIECE]
        await asyncio.sleep(0.1)


async def main(question: bytes, answer: str) -> int:
    sound, rate, code = bytearray(), 0, 1
    async with AsyncClient() as client:
        async for reply, pcm in client.ask(sound=microphone(question), speech=True, conversation="example"):
            match reply:
                case wire.Event(name="stt-end", data={"text": text}):
                    print(f"heard: {text}")
                case wire.Event(name="reply-delta", data={"text": text}):
                    print(text, end="", flush=True)
                case wire.Audio(sample_rate=rate):
                    sound += pcm  # could be played at once
                case wire.Report():
                    print(f"\n{reply.outcome}: {reply.error.message if reply.error else reply.reply}")
                    code = reply.exit_code
    if sound:
        with wave.open(answer, "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(sound)
    return code


if len(sys.argv) != 3:
    sys.exit(__doc__)
try:
    sys.exit(asyncio.run(main(recorded(sys.argv[1]), sys.argv[2])))
except AssistantError as error:
    sys.exit(f"{error.code}: {error.message}")
except (OSError, EOFError, wave.Error) as error:
    sys.exit(f"no recording, or no place for the answer: {error}")
