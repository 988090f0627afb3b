"""The verbs `devices list` and `devices test`: which microphones and speakers there are, and whether they work.

They talk to the sound system themselves and need no daemon; what a daemon holds alone they cannot open.
"""

from __future__ import annotations

import queue
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli_config import Sets
from assistant.cli_memory import JsonFlag
from assistant.cli_output import emit, fail, reported, say, show
from assistant.errors import DeviceError

if TYPE_CHECKING:
    from assistant.audio.devices import PortAudio
    from assistant.audio.front_messages import Device, DeviceKind
    from assistant.audio.stream_choice import SoundDevice

RATES = (8_000, 16_000, 22_050, 32_000, 44_100, 48_000, 96_000)
"""Hz that are tried for the list."""
OPENING_S = 6.0
BEFORE_TONE_S = 0.6
METER_S = 0.1

app = typer.Typer(help="Microphones and speakers.", no_args_is_help=True)


# --- list -----------------------------------------------------------------------------------------------------------
@app.command("list")
def list_(as_json: JsonFlag = False) -> None:
    """List microphones and speakers, with the sample rates that they really take."""
    with reported(as_json):
        from assistant.audio.devices import PortAudio, hushed

        with hushed():
            portaudio = PortAudio()
            rows = [_row(portaudio, device) for device in portaudio.devices()]
        if as_json:
            emit({"devices": rows})
            return
        lines = [line for kind in ("input", "output") for row in rows if (line := _line(row, kind))]
        if not lines:
            say("no microphone and no speaker was found: plug one in, or start the sound server")
            return
        show("\n".join([f"{'':8}{'DEVICE':32}{'CHANNELS':>9}  {'RATES (Hz)':44}API", *lines]))
        say("* = the system's default. Choose others with audio.input and audio.output.")


def _row(portaudio: PortAudio, device: SoundDevice) -> dict[str, Any]:
    kinds: tuple[DeviceKind, ...] = ("input", "output")
    ways: dict[str, Any] = {kind: _way(portaudio, device, kind) if device.channels(kind) else None for kind in kinds}
    return {"name": device.name, "host_api": device.host_api, "default_rate": device.default_rate, **ways}


def _way(portaudio: PortAudio, device: SoundDevice, kind: DeviceKind) -> dict[str, Any]:
    from assistant.audio.stream_choice import Format, opening_format

    try:
        format = opening_format(device, kind, lambda one: portaudio.takes(kind, device, one))
    except DeviceError:
        opens, rates = None, []
    else:
        opens = {"sample_rate": format.rate, "channels": format.channels}
        rates = [rate for rate in RATES if portaudio.takes(kind, device, Format(rate, format.channels))]
    return {"channels": device.channels(kind), "default": device.is_default(kind), "rates": rates, "opens": opens}


def _line(row: dict[str, Any], kind: str) -> str:
    way = row[kind]
    if way is None:
        return ""
    rates = " ".join(map(str, way["rates"])) or ("cannot be opened" if way["opens"] is None else "others")
    mark = "*" if way["default"] else " "
    return f"{kind:6}{mark} {row['name']:32}{way['channels']:>9}  {rates:44}{row['host_api']}"


# --- test -----------------------------------------------------------------------------------------------------------
@app.command("test")
def try_out(
    microphone: Annotated[
        str | None, typer.Option("--input", metavar="NAME", help="Name or regular expression.")
    ] = None,
    speaker: Annotated[str | None, typer.Option("--output", metavar="NAME", help="Name or regular expression.")] = None,
    seconds: Annotated[float, typer.Option(min=1, max=60, help="How long to listen.")] = 3.0,
    as_json: JsonFlag = False,
    sets: Sets = None,
) -> None:
    """Play a short tone, listen, and say how loud it is and what is wrong."""
    with reported(as_json):
        from assistant import config
        from assistant.audio.devices import hushed

        audio = config.load(sets or ()).audio
        trial = Trial(
            audio.input if microphone is None else microphone, audio.output if speaker is None else speaker,
            shows=not as_json and sys.stderr is not None and sys.stderr.isatty(),
        )  # fmt: skip
        try:
            with hushed() if not trial.shows else ExitStack():
                report = trial.run(seconds)
        except DeviceError as error:
            fail(error, as_json, trial.report())
        if as_json:
            emit(report)
        else:
            show("\n".join(_told(report)))
        if report["advice"]:
            raise typer.Exit(1)


class Trial:
    """One test: what was told of the devices, and what came of it."""

    def __init__(self, microphone: str, speaker: str, *, shows: bool) -> None:
        self._patterns = {"input": microphone, "output": speaker}
        self.shows = shows
        self._news: queue.SimpleQueue[Device] = queue.SimpleQueue()
        self._devices: dict[str, Device] = {}
        self._played = 0
        self._tone_begins: float | None = None

    def run(self, seconds: float) -> dict[str, Any]:
        """Raises `DeviceError` when one of them cannot be opened, or is lost."""
        import msgspec

        from assistant.audio.stream_check import advice, measure
        from assistant.audio.streams import InputStream, OutputStream

        with (
            InputStream(self._patterns["input"], ready=lambda: None, tell=self._news.put) as microphone,
            OutputStream(self._patterns["output"], fill=self._fill, tell=self._news.put) as speaker,
        ):
            microphone.start()
            speaker.start()
            self._opened()
            microphone.read()
            pcm = self._listen(microphone, seconds)
            overflows = microphone.overflows
        levels = measure(pcm, BEFORE_TONE_S)
        return {**self.report(), "levels": msgspec.to_builtins(levels), "overflows": overflows,
                "advice": list(advice(levels, overflows))}  # fmt: skip

    def report(self) -> dict[str, Any]:
        """Of both devices, as far as they were opened."""
        return {
            kind: {"name": one.name, "sample_rate": one.sample_rate, "channels": one.channels}
            if (one := self._devices.get(kind)) and one.state == "ok"
            else None
            for kind in ("input", "output")
        }

    def _opened(self) -> None:
        deadline = time.monotonic() + OPENING_S
        while len(self._devices) < 2:
            try:
                news = self._news.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise DeviceError("the sound system does not answer; is it running, or does it hang?") from None
            self._devices[news.kind] = news
        self._check()

    def _check(self) -> None:
        while not self._news.empty():
            news = self._news.get()
            self._devices[news.kind] = news
        for one in self._devices.values():
            if one.state == "lost":
                raise DeviceError(one.message.removesuffix("; it is tried again"))

    def _fill(self, frames: int, rate: int) -> bytes:
        from assistant.audio.stream_check import tone

        if self._tone_begins is None or time.monotonic() < self._tone_begins:
            return b""
        sound = tone(rate, self._played, frames)
        self._played += frames
        return sound

    def _listen(self, microphone: Any, seconds: float) -> bytes:
        from assistant.audio.stream_check import measure

        began = time.monotonic()
        self._tone_begins = began + BEFORE_TONE_S
        heard = bytearray()
        while len(heard) < seconds * 32_000:
            time.sleep(METER_S)
            piece = microphone.read()
            heard += piece
            self._check()
            if time.monotonic() - began > seconds + OPENING_S:
                break
            if self.shows:
                self._meter(measure(piece).rms_dbfs)
        if self.shows:
            print("\r" + " " * 60, end="\r", file=sys.stderr, flush=True)
        return bytes(heard[: round(seconds * 16_000) * 2])

    def _meter(self, level: float) -> None:
        bar = "#" * max(0, round((level + 60) / 60 * 40))
        print(f"\r{level:7.1f} dBFS |{bar:40}|", end="", file=sys.stderr, flush=True)


def _told(report: dict[str, Any]) -> list[str]:
    levels, heard = report["levels"], {True: "heard back", False: "not heard back", None: "not looked for"}
    lines = [
        f"{noun:11} {report[kind]['name']}, {report[kind]['sample_rate']} Hz, {report[kind]['channels']} channel(s)"
        for kind, noun in (("input", "microphone"), ("output", "speaker"))
    ]
    lines += [
        f"{'level':11} peak {levels['peak_dbfs']:.1f} dBFS, mean {levels['rms_dbfs']:.1f} dBFS"
        f" over {levels['seconds']:.1f} s; {levels['clipped']} samples clipped",
        f"{'lost':11} {report['overflows']} blocks",
        f"{'tone':11} {heard[levels['tone_heard']]}",
    ]
    return [*lines, *report["advice"]] if report["advice"] else [*lines, "All is well."]
