"""The vocabulary of the sockets: the commands. Imports `messages`; pure. `wire` has the rest, and all of it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from assistant.messages import Stage

MAX_AGE_MS = 3_600_000


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a command's `data` may hold."""


# --- commands at command.sock ---------------------------------------------------------------------------------------
class Ask(Data, frozen=True, kw_only=True):
    """One query. When `text` is null its recording comes in the PCM frames behind it, or, with `more`, while somebody
    speaks: then `ask-sound` messages bring the rest."""

    text: str | None = None
    speech: bool = False
    """Whether the reply comes as sound, too."""
    stream: bool = True
    """False: no events, and all sound in one message."""
    age_ms: Annotated[float, msgspec.Meta(ge=0, le=MAX_AGE_MS)] = 0
    """How long ago the user finished speaking; the report's timings count from then."""
    conversation: str | None = None
    """The name of the conversation that it goes on with; None = it has no history and leaves none."""
    urgency: str = "normal"
    """critical | normal | background."""
    more: bool = False
    """More sound follows, as `ask-sound`."""
    endpointing: bool = True
    """With `more`: it also ends when the daemon hears that the speaker has finished, not only with `last`."""


class AskSound(Data, frozen=True, kw_only=True):
    """The next sound of an `ask` with `more`; answered only if it is wrong. What comes after the end is ignored."""

    ask: str
    """The `id` of that `ask`, by the same client."""
    last: bool = False
    """That was all; this message may bring no sound."""


class Say(Data, frozen=True, kw_only=True):
    """Speaks a text, as it is, at the daemon's speaker; answered when it was heard. `busy` while somebody is listened
    to or answered there."""

    text: str


class Load(Data, frozen=True, kw_only=True):
    """Loads a stage ahead of its first use, and answers when it is loaded."""

    stage: Stage
    """asr | intent | llm | tts."""
    keep_alive_s: Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)] | None = None
    """None: as configured; 0: it is unloaded again at once; negative: for ever."""


class Unload(Data, frozen=True, kw_only=True):
    """Unloads a stage now; its memory is free when this is answered."""

    stage: Stage


Slot = str | int | float


class Register(Data, frozen=True, kw_only=True):
    """From now on this client answers these intents, until it leaves or registers anew. Of several with an
    intent the one is asked that has registered the `name` (else the `area`, the `floor`) that was said; of several of
    those, or when nobody has, the last one. No intents: none any more."""

    intents: tuple[str, ...]
    names: dict[str, tuple[str, ...]] = {}
    """What stands in the house: what `{name}`, `{area}` and `{floor}` of the sentences may be."""


class AnswerIntent(Data, frozen=True, kw_only=True):
    """To a `handle`."""

    query_id: str
    speech: str = ""
    """What the user is told; empty = nothing needs to be said."""
    error: str | None = None
    """What went wrong, for the user."""


# --- commands at control.sock ---------------------------------------------------------------------------------------
class Ping(Data, frozen=True, kw_only=True):
    """Is anybody there?"""


class GetStatus(Data, frozen=True, kw_only=True):
    """What it does, and what it holds."""


class GetPs(Data, frozen=True, kw_only=True):
    """What is loaded, and the memory."""


class GetSnapshot(Data, frozen=True, kw_only=True):
    """Where the events are, and the state that they have led to: for a subscriber that missed some."""


class Cancel(Data, frozen=True, kw_only=True):
    """A query that is answered or waits ends as cancelled."""

    query_id: str | None = None
    """None: what is being answered, here and at the speaker."""


class Shutdown(Data, frozen=True, kw_only=True):
    """The daemon stops: what runs or waits ends as cancelled."""


class Listen(Data, frozen=True, kw_only=True):
    """As if the wake word had been said."""


class Mute(Data, frozen=True, kw_only=True):
    """Closes the microphone, or opens it again."""

    on: bool
    """True closes it."""


class Volume(Data, frozen=True, kw_only=True):
    """How loud it speaks, from 0 to 100."""

    percent: Annotated[float, msgspec.Meta(ge=0, le=100)]
