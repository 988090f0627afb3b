"""The verbs `say`, `listen`, `mute` and `volume`: a running daemon's microphone and speaker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from assistant import cli_client
from assistant.cli_memory import JsonFlag
from assistant.cli_output import emit, reported, show
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.api.client import Client
    from assistant.messages_status import DeviceStatus, VoiceStatus

_OPEN_S = 3.0
"""That a microphone may take to open."""
_LOOK_S = 0.05


def say(
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="What is spoken, as it is.")],
    as_json: JsonFlag = False,
) -> None:
    """Speak a text at the running daemon's speaker."""
    with reported(as_json):
        with cli_client.needed() as client:
            told = client.say(" ".join(text))
        if as_json:
            import msgspec

            emit(msgspec.to_builtins(told))
        elif told.audio is not None:
            show(f"spoken   {told.audio.seconds:.1f} s")


def listen(as_json: JsonFlag = False) -> None:
    """Listen now, as if the wake word had been said."""
    with reported(as_json):
        with cli_client.needed() as client:
            told = client.listen()
        _say(told, as_json, "it listens")


def mute(
    switch: Annotated[str, typer.Argument(metavar="[on|off]", help="Close the microphone, or open it again.")] = "on",
    as_json: JsonFlag = False,
) -> None:
    """Close the microphone; 'mute off' opens it again."""
    with reported(as_json):
        if switch not in ("on", "off"):
            raise UsageError(f"mute takes on or off, not {switch!r}")
        with cli_client.needed() as client:
            told = client.mute(switch == "on")
            if switch == "off":
                told = _opened(client, told)
        _say(told, as_json, _microphone(told))


def volume(
    percent: Annotated[float, typer.Argument(metavar="PERCENT", min=0, max=100, help="0 to 100.")],
    as_json: JsonFlag = False,
) -> None:
    """How loud the assistant speaks."""
    with reported(as_json):
        with cli_client.needed() as client:
            told = client.volume(percent)
        _say(told, as_json, f"volume {told.volume_percent:g} %")


def _opened(client: Client, told: VoiceStatus) -> VoiceStatus:
    """Once the microphone is open again, or is found to be missing."""
    give_up = time.monotonic() + _OPEN_S
    while told.input.state == "off" and time.monotonic() < give_up:
        time.sleep(_LOOK_S)
        told = client.status().voice or told
    return told


def _microphone(told: VoiceStatus) -> str:
    if told.muted:
        return "the microphone is closed"
    if told.input.state == "ok":
        return "the microphone is open"
    why = told.input.message or "it does not open"
    return f"the microphone is not muted any more, but there is none now: {why}. It is opened as soon as it is there"


def _say(told: VoiceStatus, as_json: bool, text: str) -> None:
    if as_json:
        import msgspec

        emit(msgspec.to_builtins(told))
    else:
        show(text)


def lines(told: VoiceStatus) -> list[str]:
    """For `assistant status`."""
    words = ", ".join(told.words) or "nothing"
    muted = "muted; " if told.muted else ""
    return [
        f"{muted}wakes at {words}; woken {told.wakes}, interrupted {told.interruptions}, not understood {told.unheard}",
        f"microphone {_device(told.input)}",
        f"speaker {_device(told.output)}; volume {told.volume_percent:g} %",
    ]


def _device(told: DeviceStatus) -> str:
    if told.state == "ok":
        return f"{told.name} ({told.sample_rate} Hz, {told.channels} ch)"
    return {"off": "closed", "lost": f"lost: {told.message}"}[told.state]
