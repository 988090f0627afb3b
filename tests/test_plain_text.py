"""What a terminal would obey is neither in the text of others, nor in what the command line writes."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata

from assistant.plain_text import escaped, plain

HOSTILE = "a\0\x07\x1b[31mb\r\x7f\x9b2Jc\u202ed\u2069e\té\n„f“"
OBEYED = set("\0\x07\x1b\r\x7f\x9b\u202e\u2069")


def test_letters_tabs_and_newlines_stay() -> None:
    assert plain(HOSTILE) == "a[31mb2Jcde\té\n„f“"
    everything = "".join(map(chr, range(0x3000)))
    left_out = set(everything) - set(plain(everything))
    assert {letter for letter in everything if unicodedata.category(letter) == "Cc"} - left_out == {"\t", "\n"}
    assert all(unicodedata.category(letter) in ("Cc", "Cf") for letter in left_out)


def test_json_means_the_same_without_them() -> None:
    text = escaped(json.dumps({"a": HOSTILE}, ensure_ascii=False, indent=2))
    assert json.loads(text) == {"a": HOSTILE}
    assert not OBEYED & set(text)


def test_the_command_line_writes_none_of_them() -> None:
    code = (
        "import sys; from assistant import cli_output; from assistant.errors import UsageError\n"
        "text = eval(sys.argv[1])\n"
        "cli_output.show(text); cli_output.say(text); cli_output.emit({'a': text}); cli_output.fail(UsageError(text))"
    )
    ran = subprocess.run([sys.executable, "-c", code, repr(HOSTILE)], capture_output=True, check=False)
    assert ran.returncode == 2
    out, err = ran.stdout.decode(), ran.stderr.decode()
    assert not OBEYED & set(out + err)
    assert out.startswith(plain(HOSTILE))
    assert json.loads(out[out.index("{") :]) == {"a": HOSTILE}
    assert plain(HOSTILE) in err
    assert "error: a??" in err
