"""Money as English people say it: "$49.95" -> "49 dollars and 95 cents". Pure; imports `speech_numbers`."""

from __future__ import annotations

import re

from assistant.speech_numbers import NUMBER, Rule

_COINS = {
    "$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny"), "¥": ("yen", ""), "₹": ("rupee", ""),
    "₩": ("won", ""), "₽": ("ruble", ""), "₺": ("lira", ""), "₿": ("bitcoin", ""), "₴": ("hryvnia", ""),
}  # fmt: skip
_CODES = {
    "USD": "US dollar", "EUR": "euro", "GBP": "pound", "JPY": "yen", "CHF": "Swiss franc", "CAD": "Canadian dollar",
    "AUD": "Australian dollar", "CNY": "yuan", "RMB": "yuan", "INR": "rupee", "KRW": "won", "BTC": "bitcoin",
    "SEK": "Swedish krona", "NOK": "Norwegian krone", "DKK": "Danish krone", "PLN": "zloty",
    "NZD": "New Zealand dollar",
}  # fmt: skip
_WHOSE = {"US": "", "C": "Canadian ", "CA": "Canadian ", "A": "Australian ", "AU": "Australian ", "HK": "Hong Kong ",
          "NZ": "New Zealand ", "S": "Singapore "}  # fmt: skip
_SCALES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion", "t": "trillion"}
_SAME = ("yen", "won", "yuan", "lira", "zloty")
_SIGNS = "".join(_COINS)
_AMOUNT = r"\d+(?:,\d{3})*(?:\.\d+)?"
_SCALE = r"(?:\s?(?P<scale>thousand|million|billion|trillion|[kKmMbBtT]|bn)\b)?"


def _plural(amount: str, one: str) -> str:
    if amount in ("1", "1.00") or one in _SAME:
        return one
    irregular = {"penny": "pence", "Swedish krona": "Swedish kronor"}
    return irregular.get(one) or (one + "r" if one.endswith("krone") else one + "s")


def _money(match: re.Match[str]) -> str:
    whole, part, scale = match["whole"], match["part"], match["scale"]
    coin, small = _COINS[match["sign"]]
    coin = _WHOSE[match["whose"] or "US"] + coin
    minus = "minus " if match["minus"] else ""
    amount = whole + (f".{part}" if part else "")
    if match["ends"]:  # a range: "$5-10", "$1.5-2 million"
        ends = match["ends"]
        last = _SCALES.get((scale or "").lower(), scale or "")
        return f"{minus}{amount} to {ends} {last + ' ' if last else ''}{_plural('2', coin)}"
    if scale:
        return f"{minus}{amount} {_SCALES.get(scale.lower(), scale)} {_plural('2', coin)}"
    if part and len(part) == 2 and small:
        cents = str(int(part))
        change = f"{cents} {_plural(cents, small)}" if cents != "0" else ""
        if whole == "0" and change:
            return minus + change
        return f"{minus}{whole} {_plural(whole, coin)}" + (f" and {change}" if change else "")
    return f"{minus}{amount} {_plural(amount, coin)}"


def _behind(match: re.Match[str]) -> str:
    """ "20 €", "49,95 €"."""
    amount = match["amount"]
    comma = re.fullmatch(r"(\d+),(\d\d)", amount)
    coin, small = _COINS[match["sign"]]
    if comma:
        return f"{comma[1]} {_plural(comma[1], coin)} and {int(comma[2])} {_plural(str(int(comma[2])), small or coin)}"
    return f"{amount} {_plural(amount, coin)}"


def _coded(match: re.Match[str]) -> str:
    amount, code = match["before"] or match["after"], match["code1"] or match["code2"]
    scale = match["scale"]
    return f"{amount} {scale + ' ' if scale else ''}{_plural('2' if scale else amount, _CODES[code])}"


def money() -> tuple[Rule, ...]:
    codes = "|".join(_CODES)
    return (
        (re.compile(rf"(?<=[{_SIGNS}])(\d+),(\d\d)(?![\d,])"), r"\1.\2"),
        (re.compile(rf"\bR\$\s?({_AMOUNT})"), r"\1 reais"),
        (
            re.compile(
                rf"(?P<minus>(?<![\w{_SIGNS}])-)?(?:\b(?P<whose>US|CA?|AU?|HK|NZ|S))?(?P<sign>[{_SIGNS}])\s?"
                rf"(?P<whole>\d+(?:,\d{{3}})*)(?:\.(?P<part>\d+))?"
                rf"(?:\s?(?:[-–]|\bto\b)\s?[{_SIGNS}]?(?P<ends>{_AMOUNT})(?![\d-]))?{_SCALE}"
            ),
            _money,
        ),
        (re.compile(rf"(?<![\d.])(?P<amount>\d+,\d\d(?!\d)|(?:{NUMBER}))\s?(?P<sign>[{_SIGNS}])(?!\w)"), _behind),
        (
            re.compile(
                rf"\b(?:(?P<code1>{codes})\s?(?P<before>{_AMOUNT})|(?P<after>{NUMBER})(?:\s(?P<scale>thousand|million|billion))?\s?(?P<code2>{codes})\b)"
            ),
            _coded,
        ),
        (re.compile(r"(?<![\w.,])(\d{1,2})p\b"), lambda m: f"{m[1]} {_plural(m[1], 'penny')}"),
        (re.compile(rf"({NUMBER})\s?¢"), lambda m: f"{m[1]} {_plural(m[1], 'cent')}"),
    )
