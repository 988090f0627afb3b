"""How the classifier of intents is made: torch lives here and nowhere else, and nothing imports this room.

`scripts/train_intents` runs it. It reads the templates of the intent stage, the sentences in `data/` and two public
corpora, and writes `assistant/data/intents-en`, which ships.
"""
