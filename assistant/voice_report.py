"""What the voice can say of itself: its devices, its words, how often things happened. Pure bookkeeping."""

from __future__ import annotations

import logging

from assistant.audio.front_messages import Beat, Device, DeviceKind, FrontSettings, Ready
from assistant.errors import DeviceError
from assistant.messages import Emit
from assistant.messages_status import DeviceStatus, VoiceStatus

log = logging.getLogger(__name__)


class VoiceReport:
    def __init__(self, emit: Emit) -> None:
        self.wakes = self.interruptions = self.unheard = 0
        self._emit = emit
        self._lost = self._overflows = 0
        self._ready = Ready(words=(), stop_words=())
        self._devices: dict[DeviceKind, DeviceStatus] = {
            "input": DeviceStatus(state="off"),
            "output": DeviceStatus(state="off"),
        }

    @property
    def speaker(self) -> DeviceStatus:
        return self._devices["output"]

    def check(self, kind: DeviceKind) -> None:
        """Raises `DeviceError` for one that is lost."""
        device = self._devices[kind]
        if device.state == "lost":
            noun = "microphone" if kind == "input" else "speaker"
            raise DeviceError(f"there is no {noun}: {device.message}", code="audio-device-lost")

    def muted(self, on: bool) -> None:
        """A closed microphone is closed before the device has said so."""
        if on:
            self._devices["input"] = DeviceStatus(state="off")

    def take(self, packet: Ready | Beat | Device) -> None:
        match packet:
            case Ready():
                self._ready = packet
            case Beat(overflows=overflows):
                self._overflows = overflows
            case Device():
                self._device(packet)

    def _device(self, packet: Device) -> None:
        """Tells of a loss and a return, once each."""
        was = self._devices[packet.kind].state
        self._devices[packet.kind] = DeviceStatus(
            state=packet.state,
            name=packet.name,
            sample_rate=packet.sample_rate,
            channels=packet.channels,
            message=packet.message,
        )
        fields: dict[str, object] = {"kind": packet.kind, "name": packet.name, "message": packet.message}
        if packet.state == "lost" and was != "lost":
            self._lost += 1
            log.warning("%s lost: %s", packet.kind, packet.message)
            self._emit("audio-device-lost", fields)
        elif packet.state == "ok" and was == "lost":
            log.info("%s restored: %s", packet.kind, packet.name)
            self._emit("audio-device-restored", fields)

    def status(self, settings: FrontSettings, restarts: int) -> VoiceStatus:
        return VoiceStatus(
            muted=settings.muted,
            volume_percent=settings.volume_percent,
            words=self._ready.words,
            stop_words=self._ready.stop_words,
            input=self._devices["input"],
            output=self._devices["output"],
            wakes=self.wakes,
            interruptions=self.interruptions,
            unheard=self.unheard,
            devices_lost=self._lost,
            overflows=self._overflows,
            restarts=restarts,
        )
