"""The simulated home of `home.py`; `Home.intents` has what carries out each of Home Assistant's. It talks to nobody."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from assistant.api import wire

STATES = {"cover": ("open", "closed"), "gate": ("open", "closed"), "lock": ("locked", "unlocked")}  # others: on or off
KINDS = {"light": "lights", "fan": "fans", "cover": "blinds", "lock": "locks", "media_player": "players"}
AT_ONCE = ("light", "fan", "switch", "media_player")  # "everything in the kitchen": no door opens by that
WEATHER = "The weather station says: light rain, 12 degrees, wind from the west."


@dataclass
class Device:
    name: str
    area: str
    kind: str
    level: int = 0  # 0 = off, closed, unlocked; of a light its brightness
    color: str = ""

    @property
    def state(self) -> str:
        return STATES.get(self.kind, ("on", "off"))[not self.level]

    def switch(self, on: bool, words: set[str]) -> None:
        """HassTurnOn is "open" as well as "lock": at doors it matters which of them was said."""
        if self.kind in ("cover", "gate") and words & {"lock", "unlock"}:
            raise LookupError(f"The {self.name} has no lock.")
        if self.kind == "lock" and words & {"open", "close", "shut"}:
            on = "open" not in words
        self.level = 100 if on else 0

    def __str__(self) -> str:
        dimmed = f" at {self.level} percent" if 0 < self.level < 100 else ""
        return self.state + dimmed + (f", {self.color}" if self.level and self.color else "")


@dataclass
class Player(Device):
    plays: str = ""
    track: int = 1
    volume: int = 40
    muted: bool = False

    def __str__(self) -> str:
        doing = f"playing {self.plays}" if self.level else f"paused in {self.plays}" if self.plays else "silent"
        track = f", track {self.track}" if self.track > 1 else ""
        return f"{doing}{track}, {'muted' if self.muted else f'volume {self.volume}'}"


class Home:
    def __init__(self) -> None:
        self.player = Player("stereo", "living room", "media_player")
        self.devices = [
            Device("kitchen lamp", "kitchen", "light"), Device("floor lamp", "living room", "light"),
            Device("desk lamp", "office", "light"), Device("night light", "bedroom", "light"),
            Device("ceiling fan", "bedroom", "fan"), Device("coffee machine", "kitchen", "switch"),
            Device("bedroom blinds", "bedroom", "cover"), Device("living room curtains", "living room", "cover", 100),
            Device("garage door", "garage", "gate"), Device("front door", "hallway", "lock", 100),
            Device("thermostat", "hallway", "heating", 100), self.player,
        ]  # fmt: skip
        self.names = [device.name for device in self.devices]
        self.areas = sorted({device.area for device in self.devices})
        self.measured = {"living room": 21, "kitchen": 20.5, "bedroom": 17.5, "office": 20, "hallway": 18, "garage": 9}
        self.wanted: dict[str, float] = dict.fromkeys(self.measured, 20)
        # each is given what was asked and says what the user is told, or raises `LookupError` with a sentence for him
        self.intents: dict[str, Callable[[wire.Handle], str]] = {
            "HassTurnOn": self.switch, "HassTurnOff": self.switch, "HassLightSet": self.light,
            "HassGetState": self.tell, "HassGetWeather": lambda asked: WEATHER,
            "HassClimateSetTemperature": self.warm, "HassClimateGetTemperature": self.warmth,
            "HassMediaSearchAndPlay": self.play, "HassMediaNext": self.music, "HassMediaPrevious": self.music,
            "HassMediaPause": self.music, "HassMediaUnpause": self.music,
            "HassSetVolume": self.volume, "HassSetVolumeRelative": self.volume,
            "HassMediaPlayerMute": self.volume, "HassMediaPlayerUnmute": self.volume,
        }  # fmt: skip

    def state(self) -> dict[str, str]:
        heating = {f"heating of the {room}": f"{degrees:g} degrees" for room, degrees in self.wanted.items()}
        return {device.name: str(device) for device in self.devices} | heating

    def find(self, asked: wire.Handle, kind: str = "") -> list[Device]:
        """The devices that are meant, of one kind or of any."""
        name, area = asked.slots.get("name"), asked.slots.get("area")
        if name and name != "all":
            found = [device for device in self.devices if device.name == name]
            if not found:
                raise LookupError(f"There is no {name} here.")
            if kind and found[0].kind != kind:
                raise LookupError(f"The {name} is not one of the {KINDS.get(kind, kind)}.")
            return found
        kind = kind or str(asked.slots.get("domain", ""))  # of one thing by its name it does not matter
        if area and area not in self.areas:
            raise LookupError(f"There is no {area} here.")
        if not area and not kind and not name:
            raise LookupError("I do not know which device you mean.")
        sort = str(asked.slots.get("device_class", ""))  # of covers: "blind", "curtain", "garage"
        opens = sort or kind == "cover" or (not kind and words_of(asked) & {"open", "close", "shut"})  # the garage
        kinds = ("cover", "gate") if opens else (kind,) if kind else AT_ONCE
        found = [one for one in self.devices if one.kind in kinds and area in (None, one.area) and sort in one.name]
        if not found:
            what = f"{sort}s" if sort else KINDS.get(kind, "devices")
            raise LookupError(f"There are no {what}{f' in the {area}' if area else ''}.")
        return found

    def switch(self, asked: wire.Handle) -> str:
        found = self.find(asked)
        for device in found:
            device.switch(asked.intent == "HassTurnOn", words_of(asked))
        return are(found)

    def light(self, asked: wire.Handle) -> str:
        lights, slots = self.find(asked, "light"), asked.slots
        for light in lights:
            if "brightness" in slots:
                light.level = between(0, slots["brightness"], 100)
            elif "brightness_step" in slots:
                light.level = between(0, light.level + step(slots["brightness_step"], 20), 100)
            if color := slots.get("color") or (f"{slots['temperature']} kelvin" if "temperature" in slots else ""):
                light.color, light.level = str(color), light.level or 100
        return are(lights)

    def tell(self, asked: wire.Handle) -> str:
        """ "Is the front door locked?", "are any lights on in the kitchen?" """
        if (wanted := asked.slots.get("state")) == "home":
            raise LookupError("I do not know who is at home.")
        found = self.find(asked)
        both = STATES.get(found[0].kind, ("on", "off"))
        if len(found) == 1:
            told = are(found)
            return f"{'Yes' if wanted == found[0].state else 'No'}, t{told[1:]}" if wanted in both else told
        on = are([device for device in found if device.level])
        return f"{on} Nothing else is." if on else f"All of them are {both[1]}."

    def warm(self, asked: wire.Handle) -> str:
        rooms, degrees = self.rooms(asked), float(asked.slots.get("temperature", 0))
        if not 5 <= degrees <= 30:
            raise LookupError("The heating can be set to 5 to 30 degrees Celsius.")
        self.wanted.update(dict.fromkeys(rooms, degrees))
        return f"The heating{f' in the {rooms[0]}' if len(rooms) == 1 else ''} is set to {degrees:g} degrees."

    def warmth(self, asked: wire.Handle) -> str:
        room = self.rooms(asked)[0]  # the first one stands for the house
        return f"It is {self.measured[room]:g} degrees in the {room}; the heating is set to {self.wanted[room]:g}."

    def rooms(self, asked: wire.Handle) -> list[str]:
        if (area := str(asked.slots.get("area", ""))) and area not in self.measured:
            raise LookupError(f"There is no {area} here.")
        if asked.slots.get("name", "thermostat") != "thermostat":
            raise LookupError(f"The {asked.slots['name']} knows no temperature.")
        return [area] if area else list(self.measured)

    def play(self, asked: wire.Handle) -> str:
        player = self.check_player(asked)
        player.plays, player.track, player.level = str(asked.slots.get("search_query", "music")), 1, 100
        return f"Playing {player.plays}."

    def music(self, asked: wire.Handle) -> str:
        player = self.check_player(asked)
        if not player.plays:
            raise LookupError("Nothing is playing.")
        player.track = max(1, player.track + {"HassMediaNext": 1, "HassMediaPrevious": -1}.get(asked.intent, 0))
        player.level = 0 if asked.intent == "HassMediaPause" else 100
        return f"The {player.name} is {player}."

    def volume(self, asked: wire.Handle) -> str:
        player, slots = self.check_player(asked), asked.slots
        player.muted = asked.intent == "HassMediaPlayerMute"
        player.volume = between(0, slots.get("volume_level", player.volume), 100)
        player.volume = between(0, player.volume + step(slots.get("volume_step", 0), 10), 100)
        return "The sound is off." if player.muted else f"The volume is {player.volume} percent."

    def check_player(self, asked: wire.Handle) -> Player:
        for slot, ours, where in ("name", self.player.name, "called"), ("area", self.player.area, "in the"):
            if (said := asked.slots.get(slot, ours)) != ours:
                raise LookupError(f"There is no player {where} {said}.")
        return self.player


def words_of(asked: wire.Handle) -> set[str]:
    return set(re.findall(r"\w+", asked.text.lower()))


def step(value: str | float, size: int) -> float:
    return {"up": size, "down": -size}[value] if isinstance(value, str) else value


def between(low: int, value: str | float, high: int) -> int:
    return max(low, min(high, int(value)))


def are(devices: list[Device]) -> str:
    """ "The kitchen lamp is on. The desk lamp and the fan are off." """
    groups: dict[str, list[str]] = {}
    for device in devices:
        groups.setdefault(str(device), []).append(device.name)
    verbs = {state: "are" if len(names) > 1 or names[0].endswith("s") else "is" for state, names in groups.items()}
    return " ".join(f"The {' and the '.join(names)} {verbs[state]} {state}." for state, names in groups.items())
