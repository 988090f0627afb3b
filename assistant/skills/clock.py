"""What the clock on the wall and the calendar beside it say. Imports the registry."""

from __future__ import annotations

from datetime import datetime

from assistant.skills.registry import Slots, skill

# not strftime: its names follow the process's locale, these sentences are English
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip


@skill("HassGetCurrentTime")
def current_time(slots: Slots, now: datetime) -> str:
    """ "It is 8:05 PM." """
    del slots
    return f"It is {now.hour % 12 or 12}:{now.minute:02} {'AM' if now.hour < 12 else 'PM'}."


@skill("HassGetCurrentDate")
def current_date(slots: Slots, now: datetime) -> str:
    """ "Today is Sunday, November 29."; with the slot `part`, the month or the year alone."""
    month = _MONTHS[now.month - 1]
    match slots.get("part"):
        case "year":
            return f"It is the year {now.year}."
        case "month":
            return f"It is {month} {now.year}."
        case _:
            return f"Today is {_DAYS[now.weekday()]}, {month} {now.day}."
