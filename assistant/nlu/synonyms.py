"""Other words for what stands in many houses, and how recognisers mishear them. Tables of English; no code.

They are used for things that the house has, and never in the place of a name that its owner gave.
"""

from __future__ import annotations

SAME = {
    "tv": ("telly", "television", "tele", "t v", "tv set", "television set"),
    "living room": ("lounge", "sitting room", "front room", "family room"),
    "attic": ("loft",),
    "basement": ("cellar",),
    "hallway": ("hall", "corridor", "entrance hall"),
    "bathroom": ("loo", "washroom", "restroom", "bath room"),
    "garden": ("yard", "backyard", "back yard"),
    "nursery": ("baby's room", "babys room", "baby room"),
    "guest room": ("spare room", "spare bedroom", "guest bedroom", "guestroom"),
    "office": ("home office",),
    "dining room": ("dinning room", "diningroom"),
    "air conditioner": ("ac", "a c", "a/c", "air con", "aircon", "air conditioning", "aircon unit", "air condition"),
    "washing machine": ("washer", "laundry machine", "clothes washer"),
    "coffee machine": ("coffee maker", "coffeemaker", "espresso machine", "coffee pot", "coffee machines", "coffee"),
    "vacuum": ("hoover", "vacuum cleaner", "robot vacuum", "vacuum robot", "robot vacuum cleaner", "robot hoover",
               "roomba", "vacuuming", "hoovering"),
    "dishwasher": ("dish washer", "dishes machine"),
    "christmas lights": ("xmas lights", "christmas tree lights", "christmas light", "christmas tree", "xmas tree"),
    "night light": ("nite light", "nightlight"),
    "porch light": ("porch lights",),
    "doorbell camera": ("doorbell cam", "door bell camera"),
    "sprinkler": ("sprinklers", "sprinkler system", "lawn sprinkler"),
    "water heater": ("hot water heater", "boiler", "geyser", "immersion heater"),
    "kettle": ("electric kettle",),
    "thermostat": ("thermos stat", "thermo stat", "thermostats"),
    "radio": ("wireless",),
    "garage door": ("garage doors",),
}  # fmt: skip

HEARD = {
    "dough": "door", "doe": "door", "dor": "door", "daw": "door", "doors": "door",
    "lam": "lamp", "lamb": "lamp", "lump": "lamp", "ramp": "lamp", "lambs": "lamp",
    "lice": "lights", "lites": "lights", "lite": "light", "lied": "light", "lie": "light", "like": "light",
        "right": "light",
    "fen": "fan", "van": "fan", "fun": "fan",
    "vacume": "vacuum", "vacum": "vacuum",
    "pouch": "porch", "poach": "porch", "desks": "desk", "disk": "desk", "dusk": "desk", "flaw": "floor",
        "four": "floor", "flour": "floor", "flower": "floor", "flow": "floor",
    "redding": "reading", "reeding": "reading", "ceding": "ceiling", "sealing": "ceiling", "feeling": "ceiling",
    "nice": "night", "knight": "night", "nite": "night",
    "kitten": "kitchen", "chicken": "kitchen", "gauge": "garage", "garbage": "garage",
    "hole": "hall", "haul": "hall",
    "cattle": "kettle", "petal": "kettle", "metal": "kettle",
    "blends": "blinds", "lines": "blinds", "blind": "blinds", "curtain": "curtains", "certain": "curtains",
    "certains": "curtains",
    "eater": "heater", "hater": "heater", "either": "heater",
    "humid": "humidifier",
}  # fmt: skip
"""Inside of names of two words or more only; one word alone is misheard by a letter or two."""
