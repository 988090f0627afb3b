"""PortAudio and its devices, looked at by a child process: a sound system may hang, or end whoever asks it.

`python -m assistant.doctor.sound` is that child; it prints one JSON object. Imports `audio`; the parent never loads
PortAudio.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from assistant import paths
from assistant.audio.front_messages import DeviceKind
from assistant.audio.stream_choice import SoundDevice, choose
from assistant.doctor.findings import Finding
from assistant.doctor.places import user_name
from assistant.doctor.scene import Scene
from assistant.errors import AssistantError, ConfigError, DeviceError

_LIMIT_S = 6.0
"""PulseAudio's clients give up after 5 s by themselves when a server is not there."""
_RESTART = "systemctl --user restart pipewire pipewire-pulse wireplumber (or: pulseaudio -k)"


def look_at_sound(scene: Scene, limit_s: float = _LIMIT_S) -> Iterator[Finding]:
    if not scene.config.audio.enabled:
        yield Finding("sound", "ok", "audio.enabled = false: neither microphone nor speaker is used")
        return
    try:
        told = _asked(scene.environ, limit_s)
    except subprocess.TimeoutExpired:
        yield Finding("sound-hangs", "problem", f"the sound system did not answer within {limit_s:g} s", _RESTART)
        return
    if "library" in told:
        yield Finding("sound-library", "problem", told["library"], "sudo apt install libportaudio2")
        return
    if "error" in told:
        yield Finding("sound-broken", "problem", told["error"], f"look at ~/.asoundrc and /etc/asound.conf; {_RESTART}")
        return
    devices = tuple(SoundDevice(**one) for one in told["devices"])
    closed = [*permissions(scene)]
    yield from closed
    missing = [*_missing(scene, devices)]
    yield from missing
    if not missing and not closed:
        chosen = (choose(devices, kind, pattern).name for kind, pattern in _patterns(scene))
        names = " and ".join(repr(name) for name in chosen)
        yield Finding("sound", "ok", f"microphone and speaker: {names} ('assistant devices test' tries them)")


def _asked(environ: Mapping[str, str], limit_s: float) -> dict[str, Any]:
    """What the child says. Raises `TimeoutExpired`."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "assistant.doctor.sound"],
        env={**environ, "PYTHONPATH": paths.environment_of_ours()["PYTHONPATH"]},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False,
    )  # fmt: skip
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return {"error": f"PortAudio ended the process that asked it (status {done.returncode}): {last}"}
    return told


def _patterns(scene: Scene) -> tuple[tuple[DeviceKind, str], ...]:
    audio = scene.config.audio
    return ("input", audio.input), ("output", audio.output)


def _missing(scene: Scene, devices: tuple[SoundDevice, ...]) -> Iterator[Finding]:
    missing: list[str] = []
    for kind, pattern in _patterns(scene):
        try:
            choose(devices, kind, pattern)
        except ConfigError as error:
            yield Finding("settings-refused", "problem", error.message, "assistant devices list")
        except DeviceError as error:
            missing.append(error.message)
    if missing:
        fix = "assistant devices list; without sound: audio.enabled = false in config.toml"
        yield Finding("sound-no-device", "problem", _together(missing), fix)


def _together(messages: list[str]) -> str:
    """With what to do once, where it is the same."""
    heads, _, tails = zip(*(message.partition("; ") for message in messages), strict=True)
    return f"{' and '.join(heads)}; {tails[0]}" if len({*tails}) == 1 else "; ".join(messages)


def permissions(scene: Scene) -> Iterator[Finding]:
    """The kernel's devices that this user may not use; where logind gives them to whoever sits there, he may."""
    nodes = sorted((scene.root / "dev/snd").glob("pcm*"))
    closed = [node.name for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        yield Finding(
            "sound-permission", "problem" if len(closed) == len(nodes) else "advice",
            f"{user_name()} may not use {', '.join(closed)} in /dev/snd",
            f"sudo usermod -aG audio {user_name()} && sudo loginctl terminate-user {user_name()}",
        )  # fmt: skip


# --- the child ------------------------------------------------------------------------------------------------------
def told() -> dict[str, Any]:
    """Of this process's sound system: `devices`, or `library` or `error` with what is wrong."""
    from assistant.audio.devices import PortAudio

    try:
        return {"devices": [asdict(device) for device in PortAudio().devices()]}
    except (AssistantError, ImportError) as error:
        return {"library": str(error)}
    except Exception as error:  # noqa: BLE001 - PortAudio's error class can only be named after importing it
        return {"error": f"PortAudio: {error}"}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(told()) + "\n")
