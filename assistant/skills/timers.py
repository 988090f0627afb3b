"""Timers by voice: set, lengthen, shorten, pause, go on, ask, cancel. Imports the room."""

from __future__ import annotations

from collections.abc import Awaitable

from assistant.messages_timers import TimerStatus
from assistant.skills.context import Context, Kept, Timers, TooMany
from assistant.skills.registry import Missing, Slots, skill
from assistant.skills.timer_book import LEAST_S, MOST_S, MOST_TIMERS
from assistant.skills.timer_choice import Choice, called, choose, left, spoken_name
from assistant.skills.words import duration, folded, listed, seconds_of, text

NOT_RUNNING = "Timers need the running assistant; start it with 'assistant run'."
_NOT_KEPT = " It will not survive a restart, because the disk cannot be written."
_MOST = f"the longest that I can count is {duration(MOST_S)}"
_ORDINALS = ("", "Second ", "Third ", "Fourth ", "Fifth ")


@skill("HassStartTimer")
async def start(slots: Slots, context: Context) -> str:
    """ "Pasta timer set for 10 minutes." """
    if context.timers is None:
        return NOT_RUNNING
    seconds = seconds_of(slots)
    if seconds is None:
        raise Missing("duration", "For how long?")
    if seconds < LEAST_S:
        return "A timer needs at least 1 second; nothing was set."
    if seconds > MOST_S:
        return f"That is too long for a timer; {_MOST}."
    name = spoken_name(text(slots, "name")) if folded(text(slots, "name")) else ""
    alike = sum(bool(name) and folded(one.name) == folded(name) for one in context.timers.all())
    try:
        timer, kept = await context.timers.start(name, seconds)
    except TooMany:
        return f"There are {MOST_TIMERS} timers already; cancel one first."
    number = _ORDINALS[alike] if alike < len(_ORDINALS) else "Another "
    what = f"{number}{name} timer" if name else "Timer"
    return f"{what[:1].upper()}{what[1:]} set for {duration(timer.total_s)}." + _unless(kept)


@skill("HassIncreaseTimer")
async def increase(slots: Slots, context: Context) -> str:
    """ "Added 5 minutes to the pasta timer; 12 minutes left." """
    return await _change(slots, context, 1)


@skill("HassDecreaseTimer")
async def decrease(slots: Slots, context: Context) -> str:
    return await _change(slots, context, -1)


async def _change(slots: Slots, context: Context, sign: int) -> str:
    if context.timers is None:
        return NOT_RUNNING
    choice = choose(context.timers.all(), slots, states=("running", "paused", "ringing"))
    if choice.timer is None:
        return choice.refusal
    seconds, timer = seconds_of(slots), choice.timer
    if seconds is None:
        raise Missing("duration", f"How much time shall I {'add' if sign > 0 else 'take off'}?")
    if seconds < LEAST_S:
        return f"That must be at least 1 second; the {called(timer)} was not changed."
    if sign < 0 and timer.state == "ringing":
        return f"The {called(timer)} has ended already."
    if sign < 0 and seconds >= timer.left_s:
        return f"The {called(timer)} has only {left(timer)}; it was not changed."
    if max(0.0, timer.left_s) + seconds > MOST_S and sign > 0:
        return f"That would be too long for a timer; {_MOST}."
    done = f"Added {duration(seconds)} to" if sign > 0 else f"Took {duration(seconds)} off"
    return await _changed(timer, choice, context.timers.add(timer.id, sign * seconds), f"{done} the {called(timer)};")


@skill("HassPauseTimer")
async def pause(slots: Slots, context: Context) -> str:
    """ "Paused the pasta timer with 5 minutes left." """
    if context.timers is None:
        return NOT_RUNNING
    choice = choose(context.timers.all(), slots, states=("running",))
    if (timer := choice.timer) is None:
        return choice.refusal
    if timer.state == "ringing":
        return f"The {called(timer)} has ended already."
    if timer.state == "paused":
        return f"The {called(timer)} is paused already, with {left(timer)}."
    return await _changed(timer, choice, context.timers.pause(timer.id), f"Paused the {called(timer)} with")


@skill("HassUnpauseTimer")
async def resume(slots: Slots, context: Context) -> str:
    """ "The pasta timer goes on; 5 minutes left." """
    if context.timers is None:
        return NOT_RUNNING
    choice = choose(context.timers.all(), slots, states=("paused",))
    if (timer := choice.timer) is None:
        return choice.refusal
    if timer.state != "paused":
        return f"The {called(timer)} {_has(timer)}; it is not paused."
    return await _changed(timer, choice, context.timers.resume(timer.id), f"The {called(timer)} goes on;")


@skill("HassTimerStatus")
async def status(slots: Slots, context: Context) -> str:
    """ "The pasta timer has 5 minutes left." Of all, when none is named."""
    if context.timers is None:
        return NOT_RUNNING
    timers = context.timers.all()
    choice = choose(timers, slots)
    if choice.timer is None:
        return choice.refusal
    meant = [choice.timer, *choice.others]
    if len(meant) == 1:
        return f"The {called(meant[0])} {_has(meant[0])}."
    told = [f"the {called(timer)} {_has(timer)}" for timer in meant[:5]]
    more = [f"{len(meant) - 5} more are behind them"] if len(meant) > 5 else []
    return f"There are {len(meant)} timers: {listed([*told, *more])}."


@skill("HassCancelTimer")
async def cancel(slots: Slots, context: Context) -> str:
    """ "Cancelled the pasta timer, which had 5 minutes left." """
    if context.timers is None:
        return NOT_RUNNING
    choice = choose(context.timers.all(), slots, states=("ringing",))
    if (timer := choice.timer) is None:
        return choice.refusal
    if not await context.timers.cancel(timer.id):
        return _gone(timer)
    if timer.state == "ringing":
        return f"The {called(timer)} is off.{_rest(choice)}"
    return f"Cancelled the {called(timer)}, which had {left(timer)}.{_rest(choice)}"


@skill("HassCancelAllTimers")
async def cancel_all(slots: Slots, context: Context) -> str:
    del slots
    if context.timers is None:
        return NOT_RUNNING
    gone = await context.timers.cancel(*(timer.id for timer in context.timers.all()))
    if not gone:
        return "There is no timer."
    return f"Cancelled the {called(gone[0])}." if len(gone) == 1 else f"Cancelled all {len(gone)} timers."


async def silence(timers: Timers) -> None:
    """Ends what rings."""
    await timers.cancel(*(timer.id for timer in timers.all() if timer.state == "ringing"))


async def _changed(timer: TimerStatus, choice: Choice, work: Awaitable[Kept], told: str) -> str:
    """What was done, and how much is left now. The timer may have gone while we talked of it."""
    try:
        changed, kept = await work
    except KeyError:
        return _gone(timer)
    return f"{told} {left(changed)}.{_rest(choice)}" + _unless(kept)


def _gone(timer: TimerStatus) -> str:
    return f"The {called(timer)} is not there any more."


def _unless(kept: bool) -> str:
    return "" if kept else _NOT_KEPT


def _has(timer: TimerStatus) -> str:
    if timer.state == "ringing":
        return left(timer)
    return f"{'is paused with' if timer.state == 'paused' else 'has'} {left(timer)}"


def _rest(choice: Choice) -> str:
    """Which others could have been meant: two of one name are told apart by what is left."""
    if not choice.others:
        return ""
    if len(choice.others) > 1:
        return f" {len(choice.others)} other timers stay as they are."
    other = choice.others[0]
    same = choice.timer is not None and called(other) == called(choice.timer)
    return f" The {'other one' if same else called(other)} {_has(other)}."
