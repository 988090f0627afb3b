"""The house of these tests: what sentences may name."""

from __future__ import annotations

from assistant.nlu.house import House

AREAS = (
    "kitchen|cookroom", "living room", "bedroom", "bathroom", "office", "garage", "hallway", "garden",
    "dining room", "attic",
    "basement", "nursery", "guest room",
)  # fmt: skip
NAMES = (
    "kitchen lamp", "desk lamp", "floor lamp", "reading lamp", "night light", "christmas lights", "porch light",
    "ceiling fan",
    "front door", "back door", "garage door", "coffee machine", "kettle|brewer", "dishwasher", "washing machine",
    "vacuum",
    "heater", "thermostat", "tv", "radio", "kitchen speaker", "bedroom blinds", "living room curtains",
    "air conditioner",
    "humidifier", "sprinkler", "water heater", "doorbell camera",
)  # fmt: skip
HOUSE = House.of({"name": NAMES, "area": AREAS, "floor": ("ground floor",)})
