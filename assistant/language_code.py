"""Codes of languages, as voices, settings, recognisers and programs write them. Imports nothing."""

from __future__ import annotations


def base_of(code: str) -> str:
    """ "en" of "en", "en-GB", "en_US", "EN"; "zh" of "zh-Hans-CN": the language without its country or script."""
    return code.strip().replace("_", "-").partition("-")[0].casefold()
