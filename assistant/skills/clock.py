"""What the clock on the wall and the calendar beside it say. Imports the registry."""

from __future__ import annotations

from datetime import datetime, timedelta

from assistant.skills.context import Context
from assistant.skills.registry import Slots, skill

# not strftime: its names follow the process's locale, these sentences are English
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_OTHER_DAYS = {
    -2: "The day before yesterday was",
    -1: "Yesterday was",
    1: "Tomorrow is",
    2: "The day after tomorrow is",
}


@skill("HassGetCurrentTime")
async def current_time(slots: Slots, context: Context) -> str:
    """ "It is 8:05 PM." """
    del slots
    return f"It is {_time(context.now)}."


@skill("HassGetCurrentDate")
async def current_date(slots: Slots, context: Context) -> str:
    """ "Today is Sunday, November 29."

    With the slot `part`: the `month` or the `year` alone, or the `time` too. With `offset_days`: another day's.
    """
    offset, now = slots.get("offset_days"), context.now
    if isinstance(offset, int) and offset in _OTHER_DAYS:
        return f"{_OTHER_DAYS[offset]} {_day(now + timedelta(days=offset))}."
    month = _MONTHS[now.month - 1]
    match slots.get("part"):
        case "year":
            return f"It is the year {now.year}."
        case "month":
            return f"It is {month} {now.year}."
        case "time":
            return f"It is {_time(now)} on {_day(now)}."
        case _:
            return f"Today is {_day(now)}."


def _time(now: datetime) -> str:
    return f"{now.hour % 12 or 12}:{now.minute:02} {'AM' if now.hour < 12 else 'PM'}"


def _day(when: datetime) -> str:
    return f"{_DAYS[when.weekday()]}, {_MONTHS[when.month - 1]} {when.day}"
