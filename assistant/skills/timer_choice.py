"""Which timer somebody means, and how it is called in a reply. Pure; imports `messages_timers` and `words`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assistant.messages_timers import TimerStatus
from assistant.skills.words import ago, duration, listed, of_name, rough, seconds_of, text


@dataclass(frozen=True, slots=True)
class Choice:
    timer: TimerStatus | None
    others: tuple[TimerStatus, ...] = ()
    """That were meant as much by these words: the one that ends first was taken."""
    refusal: str = ""
    """When there is none."""


def choose(timers: Sequence[TimerStatus], slots: Mapping[str, object], *, states: Sequence[str] = ()) -> Choice:
    """By name, else by the length it was set for, else the one there is; of several the one that ends first.

    `timers`: the nearest to its end first. `states`: those that are preferred where the words leave it open ("resume
    the timer" means one that is paused).
    """
    if not timers:
        return Choice(None, refusal="There is no timer.")
    name, length = text(slots, "name"), seconds_of(slots, "start_")
    found = list(timers)
    if name:
        found = of_name((timer for timer in timers if timer.name), name, lambda timer: timer.name)
        if not found and length is None:
            return Choice(None, refusal=f"There is no {spoken_name(name)} timer.{_there_is(timers)}")
    if length is not None:
        of_length = [timer for timer in found or timers if abs(timer.total_s - length) < 1]
        if not of_length and not (name and found):
            return Choice(None, refusal=f"There is no timer of {duration(length)}.{_there_is(timers)}")
        found = of_length or found
    preferred = [timer for timer in found if timer.state in states] or found
    return Choice(preferred[0], tuple(preferred[1:]))


def spoken_name(name: str) -> str:
    """Without the word that follows it in every reply."""
    bare = name.removesuffix(" timer").removeprefix("the ")
    return bare or name


def called(timer: TimerStatus) -> str:
    """ "pasta timer", "10 minute timer"."""
    if timer.name:
        return f"{spoken_name(timer.name)} timer"
    for size, unit in ((3600, "hour"), (60, "minute")):
        if timer.total_s >= size and timer.total_s % size == 0:
            return f"{round(timer.total_s / size)} {unit} timer"
    if timer.total_s < 60:
        return f"{round(timer.total_s)} second timer"
    return f"timer of {duration(timer.total_s)}"


def left(timer: TimerStatus) -> str:
    """ "3 minutes left", "ended 2 minutes ago"."""
    if timer.state == "ringing":
        return f"ended {ago(-timer.left_s)}" if timer.left_s < -1 else "is ringing"
    return f"{rough(timer.left_s)} left"


def finished(timer: TimerStatus) -> str:
    """What is said when it rings: "Your pasta timer is done." """
    if timer.left_s <= -LATE_S:
        return f"Your {called(timer)} ended {ago(-timer.left_s)}."
    return f"Your {called(timer)} is done."


LATE_S = 10.0
"""What was not heard that long after its end says so."""


def _there_is(timers: Sequence[TimerStatus]) -> str:
    names = [f"the {called(timer)}" for timer in timers[:4]]
    more = len(timers) - len(names)
    return f" There {'is' if len(timers) == 1 else 'are'} {listed([*names, f'{more} more'] if more else names)}."
