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

PIECE = 1600  # samples: a tenth of a second


async def microphone(path: str) -> AsyncIterator[bytes]:
    with wave.open(path) as recording:
        while piece := recording.readframes(PIECE):
            yield piece
            await asyncio.sleep(PIECE / recording.getframerate())


async def main(question: str, answer: str) -> int:
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
                    print(f"\n{reply.outcome}: {reply.reply}")
                    code = reply.exit_code
    if sound:
        with wave.open(answer, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(sound)
    return code


if len(sys.argv) != 3:
    sys.exit(__doc__)
try:
    sys.exit(asyncio.run(main(*sys.argv[1:])))
except AssistantError as error:
    sys.exit(f"{error.code}: {error.message}")
