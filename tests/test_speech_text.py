"""What a voice is given to read."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import paths, speech_language
from assistant.config import Config
from assistant.config_sections import Stages, Tts
from assistant.daemon_specs import stage_spec
from assistant.messages import Stage
from assistant.model_store.store import ModelStore
from assistant.speech_text import SpeechText, speakable

GOLDEN = [
    (path.stem, *line.split("\t"))
    for path in sorted((Path(__file__).parent / "speech_text").glob("*.tsv"))
    for line in path.read_text("utf-8").splitlines()
]
"""Language, shown, spoken."""

CODE_MENTION = "Code omitted."
LANGUAGES = ("en", "de", "fr", "zh", "ko", "ja", "ru", "xx")

MARKDOWN = [
    ("**Paris** is *the* __capital__ of _France_.", "Paris is the capital of France."),
    ("## History of Paris", "History of Paris."),
    ("- apples\n* pears\n+ **plums**!", "apples. pears. plums!"),
    ("> quoted", "quoted."),
    ("- [x] done", "done."),
    ("Above\n\n---\n\nBelow", "Above. Below"),
    ("See [the page](https://example.com/a_b) and ![a cat](cat.png).", "See the page and a cat."),
    ("Go to https://www.example.com/a/b?c=d. Now.", "Go to example dot com. Now."),
    ("<https://example.com>", "example dot com"),
    ("Use `ls` for my_file.", "Use ls for my file."),
    ("A <b>bold</b> word<br/>", "A bold word"),
    ("5 &lt; 6 &amp; more", "5 is less than 6 and more"),
    ("| City | Size |\n|---|---|\n| Paris | big |", "City, Size. Paris, big."),
    ("Say [[fəʊnɪmz]] now", "Say fəʊnɪmz now"),
    ("Here:\n```python\nprint(1)\n```\nDone.", f"Here: {CODE_MENTION} Done."),
    ("2 * 3 and 4*5", "2 times 3 and 4 times 5"),
]
SYMBOLS = [
    ("😀 Hello 👋🏽 world 🇩🇪 ™", "Hello world"),
    ("╔══╗ box ╚══╝ ▓▓", "box"),
    ("a\x00b\x07c\u200bd\ufeffe", "abcde"),
    ("non\u00a0breaking\u2009space", "non breaking space"),
    ("lone \ud83d surrogate", "lone surrogate"),
    ("What?!?! No!!!", "What? No!"),
    ("Tokyo → Osaka", "Tokyo to Osaka"),
    ("Wait… what", "Wait... what"),
    ("It is late — very late – now.", "It is late, very late, now."),
]
NUMBERS = [
    ("It costs $49.95.", "It costs 49 dollars and 95 cents."),
    ("$1, $0.99, $1.00, -$5, US$7", "1 dollar, 99 cents, 1 dollar, minus 5 dollars, 7 dollars"),
    ("$1,000.50 or $1.2 million or $5k", "1,000 dollars and 50 cents or 1.2 million dollars or 5 thousand dollars"),
    ("€20, 20€, £3.50, ¥500", "20 euros, 20 euros, 3 pounds and 50 pence, 500 yen"),
    ("$100/month", "100 dollars per month"),
    ("At 8:00. At 8:05 PM. At 20:15.", "At 8 o'clock. At 8 oh 5 PM. At 20 15."),
    ("At 8:05 p.m. we go. At 8 a.m. We go.", "At 8 oh 5 PM we go. At 8 AM. We go."),
    ("0:00, 12:00, 20:00, 12:30:15", "midnight, 12 o'clock, 20 hundred hours, 12 30 and 15 seconds"),
    ("Today is Sunday, November 29.", "Today is Sunday, November 29th."),
    ("Nov. 3, 2021; 2026-11-29; 11/29/2026", "November 3rd, twenty twenty-one; November 29th, twenty twenty-six; November 29th, twenty twenty-six"),  # noqa: E501
    ("May 4 and June 22nd", "May 4th and June 22nd"),
    ("in 1980, in 2005, (1905), since 1900", "in nineteen eighty, in 2005, (nineteen oh five), since nineteen hundred"),
    ("1939-1945, the 1990s, the '80s", "nineteen thirty-nine to nineteen forty-five, the nineteen nineties, the eighties"),  # noqa: E501
    ("in 1500 meters, 1,980 people, 1980.5", "in 1500 meters, 1,980 people, 1980.5"),
    ("50%, 3.14, 1,000, 22nd, -5", "50 percent, 3.14, 1,000, 22nd, -5"),
    ("20°C, 72°F, 1 km, 10 km/h, 5 km²", "20 degrees Celsius, 72 degrees Fahrenheit, 1 kilometer, 10 kilometers per hour, 5 square kilometers"),  # noqa: E501
    ("16 GB, 5 ft, 1 ft, 2.4GHz, 60 mph", "16 gigabytes, 5 feet, 1 foot, 2.4 gigahertz, 60 miles per hour"),
    ("+1 555 123 4567 or (555) 123-4567", "plus 1, 5 5 5, 1 2 3, 4 5 6 7 or 5 5 5, 1 2 3, 4 5 6 7"),
    ("call 555-1234", "call 5 5 5, 1 2 3 4"),
    ("1/2, 2½, 7/8, 24/7", "one half, 2 and a half, seven eighths, 24 7"),
    ("3-5, 3–5, #5, No. 5, ~5, x^2", "3 to 5, 3 to 5, number 5, number 5, about 5, x squared"),
    ("World War II, Henry VIII", "World War 2, Henry the 8th"),
]  # fmt: skip
ABBREVIATIONS = [
    ("Dr. Smith, St. John, the U.S. Army", "Dr Smith, St John, the U S Army"),
    ("In the U.S.", "In the U S."),
    ("e.g. this, i.e. that, etc.", "for example, this, that is, that, et cetera."),
    ("he/she and/or we vs. them", "he or she and or we versus them"),
]
SCRIPTS = [
    ("In Japanese, hello is こんにちは.", "In Japanese, hello is."),
    ("Hello (こんにちは) there", "Hello there"),
    ("(東京, Japan) and the word “東京”", "(Japan) and the word"),
    ("Привет, мир! Hello", "Hello"),
    ("Tokyo, 東京, is big.", "Tokyo, is big."),
    ("- 東京: capital", "capital."),
    ("| 東京 | Tokyo |", "Tokyo."),
    ("2024年11月29日", "twenty twenty-four 11 29"),
    ("नमस्ते। hello, سلام، 한국어", "hello,"),
    ("Say а́б now", "Say now"),
    ("naïve café, Zürich, Łódź, Đỗ, Hawaiʻi", "naïve café, Zürich, Łódź, Đỗ, Hawaiʻi"),
    ("١٢٣ and Ｔｗｏ １２", "123 and Two 12"),
    ("π is 3.14, so 2πr", "pi is 3.14, so 2 pi r"),
    ("5 μm, 3 µs, 10 Ω, 4.7kΩ", "5 micrometers, 3 microseconds, 10 ohms, 4.7 kiloohms"),
    ("Ελλάδα means Greece", "means Greece"),
]


@pytest.mark.parametrize(("shown", "said"), [*MARKDOWN, *SYMBOLS, *NUMBERS, *ABBREVIATIONS, *SCRIPTS])
def test_what_is_written_for_eyes_becomes_what_is_said(shown: str, said: str) -> None:
    assert speakable(shown) == said


@pytest.mark.parametrize(
    "text",
    [
        "The capital of France is Paris.",
        "It's 5 in the morning; I'm 5.",
        "Well-known C++ and H2O.",
        "A rise of 3.5, no?",
    ],
)
def test_plain_text_is_left_alone(text: str) -> None:
    assert speakable(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "...",
        "---",
        "***",
        "😀👋",
        "\x00\x01",
        "|---|",
        "?!",
        "#",
        "``",
        "\ud83d",
        "こんにちは",
        "東京。",
        "Привет, мир!",
        "한국어는",
        "`код`",
        "«Ελλάδα»",
        "سلام؟",
    ],
)
def test_nothing_to_say_is_empty(text: str) -> None:
    assert speakable(text) == ""


@pytest.mark.parametrize(("language", "shown", "said"), GOLDEN)
def test_golden_files(language: str, shown: str, said: str) -> None:
    assert speakable(shown, language) == said


def test_the_golden_files_are_there() -> None:
    counts = {name: sum(language == name for language, _, _ in GOLDEN) for name in ("en", "de", "fr", "zh", "ko")}
    assert counts["en"] >= 150
    assert min(counts.values()) >= 10


def test_a_block_of_code_is_mentioned_once_when_it_comes_in_pieces() -> None:
    speech = SpeechText()
    said = [speech.say(piece) for piece in ["Look:", "```python", "x = 1", "y = 2", "```", "Done."]]
    assert said == ["Look:", CODE_MENTION, "", "", "", "Done."]


@pytest.mark.parametrize("text", ["Elizabeth II9", "Apollo XIk", "Part IIII", "George VI10", "Henry IIII"])
def test_what_only_begins_like_a_roman_numeral_stays(text: str) -> None:
    assert speakable(text) == text


def test_a_piece_that_goes_on_gets_no_full_stop() -> None:
    assert speakable("The capital of France and") == "The capital of France and"


_SNIPPETS = st.lists(
    st.tuples(st.sampled_from(GOLDEN), st.integers(0, 20), st.integers(1, 40)).map(
        lambda of: of[0][1][of[1] :][: of[2]]
    )
    | st.text(alphabet="*`#[(|<~-+.$€/:09 aIVXkm%°^=,@\\😀½²⁻Ω", max_size=4),
    max_size=5,
).map("".join)
"""Parts of what is known, side by side."""

_ANY = (
    _SNIPPETS
    | st.text(max_size=200)
    | st.text(alphabet="*_`#[]()|<>~-+.$€/:0123456789 aAegIVXkm%°^=,@\\n\x00😀½–\"'", max_size=120)
    | st.text(alphabet="aé1 ,.!?()\"'-。、東京ПиΩμπ١나नि\u0301", max_size=60)
    | st.lists(st.sampled_from([shown for _, shown, _ in GOLDEN]), max_size=4).map(" ".join)
)


@given(_ANY, st.sampled_from(LANGUAGES))
def test_the_result_is_one_clean_line(text: str, language: str) -> None:
    said = speakable(text, language)
    assert said == said.strip()
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\ufeff\ud800-\udfff*`|\[\]\u2500-\u259f]", said)
    assert not re.search(r"[\U0001f000-\U0001faff]", said)
    assert "  " not in said
    said.encode()
    if language in ("en", "de", "fr"):
        assert not re.search(r"[\u0391-\u1c7f\u3041-\u9fff\uac00-\ud7a3]", said)


@given(_ANY)
def test_what_was_said_once_is_said_the_same_again(text: str) -> None:
    assert speakable(text) == speakable(text)


@given(st.integers(0, 99_999), st.integers(0, 99))
def test_no_cent_is_lost(dollars: int, cents: int) -> None:
    said = speakable(f"It costs ${dollars:,}.{cents:02}.")
    numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", said)]
    amount = dollars * 100 + cents
    expected = [dollars, cents] if dollars and cents else [dollars or cents] if amount else [0]
    assert numbers == expected
    assert ("cent" in said) == (cents > 0)


@pytest.mark.parametrize("language", ["en", "de", "zh"])
@pytest.mark.parametrize(
    "part",
    [
        "9", "[", "*", "1/", "<a", "$1,000", "1-", "www.", "`", "|", "A.", "word $5 8:00 [x](y) ", "1.", "1:", "a@",
        "a.", "/a", "~/a",
        "$x", "\\frac{", "[x]((", "_a", "5 km/", "5'", "X", "I ", "+1 ", "0 ", "in 2020 ", "= ", "½", "²",
        "https://a/(", "https://a?", "1e", "東", "€", "12 - ", '5"', "x^",
    ],
)  # fmt: skip
def test_time_grows_with_the_text_and_no_faster(part: str, language: str) -> None:
    def seconds(size: int) -> float:
        text = part * (size // len(part))
        started = time.process_time()
        speakable(text, language)
        return time.process_time() - started

    # quadratic in any of fifty rules, this would be thousands of times the short one
    assert seconds(8_000) < max(30 * seconds(1_000), 0.5)


def test_a_hundred_kilobytes_are_done_in_a_few_seconds() -> None:
    text = " ".join(shown for language, shown, _ in GOLDEN if language == "en")
    started = time.process_time()
    said = speakable((text * (100_000 // len(text) + 1))[:100_000])
    assert len(said) > 100_000
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("voice", "language"),
    [
        ("en_US-joe-medium", "en"),
        ("de_DE-thorsten-medium", "de"),
        ("zh_CN-huayan-medium", "zh"),
        ("my-voice", "en"),
        ("127.0.0.1:10200", "en"),
        ("", "en"),
    ],
)
def test_the_language_of_a_voice_by_its_name(voice: str, language: str) -> None:
    assert speech_language.of_voice(voice) == language
    assert speech_language.of_voice(voice, configured="fr") == "fr"


@pytest.mark.parametrize(
    ("written", "language"),
    [
        ('{"language": {"code": "de_DE"}}', "de"),
        ('{"espeak": {"voice": "cmn"}}', "zh"),
        ('{"language": null}', "en"),
        ("[]", "en"),
        ("{", "en"),
        ('{"language": {"code": 5}}', "en"),
    ],
)
def test_the_file_beside_a_voice_says_its_language(tmp_path: Path, written: str, language: str) -> None:
    (tmp_path / "mine.onnx.json").write_text(written)
    assert speech_language.language(speech_language.of_voice("mine", tmp_path)).code == language


def test_a_file_that_cannot_be_read_once_is_asked_again(tmp_path: Path) -> None:
    written = tmp_path / "mine.onnx.json"
    written.symlink_to("/proc/self/mem")  # which gives EIO
    with pytest.raises(OSError, match="Input/output"):
        speech_language.of_voice("mine", tmp_path)
    written.unlink()
    assert speech_language.of_voice("mine", tmp_path) == "en"
    written.write_text('{"language": {"code": "de_DE"}}')
    assert speech_language.of_voice("mine", tmp_path) == "de_DE"


def test_text_of_another_language_is_not_read_by_english_rules() -> None:
    shown = "**Es** kostet 49,95 € in der No. 5 😀"
    assert speakable(shown, "de") == "Es kostet 49 Euro 95 in der No. 5"
    assert speakable("**Привет** мир, 東京 5 км 😀", "ru") == "Привет мир, 5 км"
    assert speakable("**こんにちは** 世界", "ja") == "こんにちは 世界"
    assert speakable("नमस्ते **दुनिया**", "hi") == "नमस्ते दुनिया"
    assert speakable("日本 Привет", "tlh") == "日本 Привет"


def test_code_is_mentioned_in_the_language_of_the_voice() -> None:
    assert SpeechText("de_DE").say("```\nx\n```") == "Code ausgelassen."
    assert SpeechText("ja").say("```\nx\n```") == ""


@pytest.mark.parametrize("language", ["", "de"])
def test_the_language_of_a_voice_on_a_server_is_configured(tmp_path: Path, language: str) -> None:
    tts = Tts(engine="wyoming", language=language)
    spec = stage_spec(Stage.TTS, Config(stages=Stages(tts=tts)), ModelStore(tmp_path, paths.catalog_file()))
    assert speech_language.of_voice(spec.model, configured=spec.language) == (language or "en")


@pytest.mark.parametrize("unit", ["1,", "1,1", "1.1", "$1,", "1:", "1/", "-1"])
def test_long_rows_of_numbers_take_no_longer_than_other_text(unit: str) -> None:
    started = time.process_time()
    speakable(unit * 4000)
    assert time.process_time() - started < 1.5
