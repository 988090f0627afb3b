"""A model is asked in its own chat format, as MNN really renders it; where that fails in a known one, or not at all."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from assistant.errors import ModelUnsupported
from assistant.model_store.chat_template import CONVERSATIONS, FORMATS, choose, flaw
from assistant.model_store.convert_gguf import convert_gguf
from assistant.model_store.gguf import GgufFile
from assistant.model_store.llm_tokenizer import LlmTokenizer, read_tokenizer
from assistant.model_store.template_probe import render
from assistant.model_store.vocabulary import Vocabulary
from tests.model_store import tiny_bpe
from tests.model_store.tiny_gguf import Tiny, write_model

CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA3 = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
NEITHER = ("<a>", "<b>", "<c>")
JOINED = "{% for m in messages %} {{ m['content'] }} {% endfor %}"
TALK = [("system", "Be brief."), ("user", "Hi there"), ("assistant", "Hello."), ("user", "Why?")]


def tokenizer(path: Path, special: tuple[str, ...], template: str | None) -> LlmTokenizer:
    keys = tiny_bpe.metadata(special=special, template=template)
    with GgufFile(write_model(path / "x.gguf", Tiny(layers=1), keys)) as gguf:
        return read_tokenizer(gguf)


@pytest.mark.engine
def test_the_known_formats_as_mnn_renders_them() -> None:
    chatml, llama3 = (render(form.template, "<bos>", "<eos>", [TALK])[0] for form in FORMATS)
    assert chatml == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi there<|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )
    head = "<|start_header_id|>{}<|end_header_id|>\n\n{}".format
    turns = [head(role, content) + "<|eot_id|>" for role, content in TALK]
    assert llama3 == "".join(turns) + head("assistant", "")


@pytest.mark.engine
def test_no_known_format_has_a_flaw_and_the_probe_is_quick() -> None:
    began = time.monotonic()
    for form in FORMATS:
        assert flaw(render(form.template, "", "", CONVERSATIONS)) == ""
    assert time.monotonic() - began < 3, "0.1 s each on an idle machine"


TURN = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}"
ASK = "{% if add_generation_prompt %}<assistant>{% endif %}"
GOOD = {
    "its own": TURN + ASK,
    "bos and eos": "{{ bos_token }}" + TURN.replace("<end>", "{{ eos_token }}") + ASK,
    "thinks": TURN + ASK.replace("<assistant>", "<assistant><think>{{ '\\n' }}"),
    "a default system": "{% if messages[0]['role'] != 'system' %}<system>Be kind.<end>{% endif %}" + TURN + ASK,
    "on many lines": (
        "{% for m in messages %}\n    {{ '<' + m['role'] + '>' + m['content'] + '<end>' }}\n    {% endfor %}\n"
        "{% if add_generation_prompt %}\n    {{ '<assistant>' }}\n{% endif %}"
    ),
    "in the manner of Llama 3.2": (
        "{{- bos_token }}\n"
        "{%- if not today is defined %}\n    {%- if strftime_now is defined %}\n"
        "        {%- set today = strftime_now('%d %b %Y') %}\n"
        "    {%- else %}\n        {%- set today = '1 Jan 2024' %}\n    {%- endif %}\n{%- endif %}\n"
        "{%- if messages[0]['role'] == 'system' %}\n"
        "    {%- set orders = messages[0]['content'] | trim %}\n    {%- set messages = messages[1:] %}\n"
        "{%- else %}\n    {%- set orders = '' %}\n{%- endif %}\n"
        "{{- '<system>' + 'Today: ' + today + '\\n\\n' + orders + '<end>' }}\n"
        "{%- for message in messages %}\n    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}\n"
        "        {{- '<' + message['role'] + '>\\n\\n' + message['content'] | trim + '<end>' }}\n"
        "    {%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<assistant>\\n\\n' }}\n{%- endif %}"
    ),
    "in the manner of Qwen 3": (
        "{%- set ns = namespace(last=messages|length - 1) %}\n"
        "{%- for message in messages[::-1] %}\n    {%- set at = (messages|length - 1) - loop.index0 %}\n"
        "    {%- if message.role == 'user' and not(message.content.startswith('<result>')) %}\n"
        "        {%- set ns.last = at %}\n    {%- endif %}\n{%- endfor %}\n"
        "{%- for message in messages %}\n    {%- set said = message.content %}\n"
        "    {%- if '</think>' in said %}\n"
        "        {%- set said = said.split('</think>')[-1].lstrip('\\n') %}\n    {%- endif %}\n"
        "    {{- '<' + message.role + '>\\n' + said + '<end>\\n' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<assistant>\\n' }}\n"
        "    {%- if thinking is defined and thinking is false %}\n        {{- '<think>\\n\\n</think>\\n\\n' }}\n"
        "    {%- endif %}\n{%- endif %}"
    ),
    "instructions with the last question": (
        "{% set ns = namespace(s='') %}"
        "{% for m in messages %}"
        "{% if m['role'] == 'system' %}{% set ns.s = m['content'] + '\\n\\n' %}"
        "{% elif m['role'] == 'user' %}[ASK]{% if loop.last %}{{ ns.s }}{% endif %}{{ m['content'] }}[/ASK]"
        "{% else %} {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
    ),
}


@pytest.mark.engine
@pytest.mark.parametrize("name", GOOD)
def test_a_template_that_mnn_renders_is_kept(name: str, tmp_path: Path) -> None:
    before = tokenizer(tmp_path, CHATML, GOOD[name])
    assert choose(before, tmp_path) == (before, "the file's own", "")


BAD = {
    "joined": (JOINED, "nothing after the last question"),
    "no jinja": ("hello", "exactly once"),
    "broken": ("{% for m in messages %}{{ m['content'] ", "nothing after the last question"),
    "no system": (TURN.replace("messages", "messages if m['role'] != 'system'") + ASK, "exactly once"),
    "says it twice": (TURN + TURN + ASK, "exactly once"),
    "backwards": (TURN.replace("messages", "messages[::-1]") + ASK, "out of order"),
    "only ends": (TURN, "begin like"),
    "nothing between": ("{% for m in messages %}{{ m['content'] }}{% endfor %}" + ASK, "nothing separates"),
    "a call that MNN does not know": (TURN + "{% if summon(messages) %}" + ASK + "{% endif %}", "begin like"),
}


@pytest.mark.engine
@pytest.mark.parametrize("name", BAD)
def test_a_template_that_does_not_work_is_replaced_by_what_the_tokens_say(name: str, tmp_path: Path) -> None:
    template, why = BAD[name]
    kept, form, remark = choose(tokenizer(tmp_path, CHATML, template), tmp_path)
    assert (kept.chat_template, form) == (FORMATS[0].template, "ChatML")
    assert why in remark
    assert "MNN cannot use the file's chat template" in remark


@pytest.mark.parametrize(("special", "form"), [(CHATML, FORMATS[0]), (LLAMA3, FORMATS[1])])
def test_without_a_template_the_tokens_decide(special: tuple[str, ...], form: object, tmp_path: Path) -> None:
    kept, name, remark = choose(tokenizer(tmp_path, special, None), tmp_path)
    assert [f for f in FORMATS if f.name == name and f.template == kept.chat_template] == [form]
    assert "no chat template" in remark


def test_control_tokens_of_a_format_in_use_are_never_shown(tmp_path: Path) -> None:
    keys = tiny_bpe.metadata(special=CHATML, template=None)
    kinds = keys["tokenizer.ggml.token_type"]
    keys["tokenizer.ggml.token_type"] = [4 if kind == 3 else kind for kind in kinds]  # added, yet not control tokens
    with GgufFile(write_model(tmp_path / "x.gguf", Tiny(layers=1), keys)) as gguf:
        before = read_tokenizer(gguf)
    assert before.special_ids == []
    kept, _, _ = choose(before, tmp_path)
    assert [kept.tokens[i] for i in kept.special_ids] == [b"<|im_start|>", b"<|im_end|>"]


@pytest.mark.parametrize(("template", "said"), [(None, "use the instruct variant"), (JOINED, "nothing after the last")])
def test_a_model_that_nobody_can_talk_to_is_refused(template: str | None, said: str, tmp_path: Path) -> None:
    keys = tiny_bpe.metadata(special=NEITHER, template=template)
    gguf = write_model(tmp_path / "x.gguf", Tiny(layers=1), keys)
    with pytest.raises(ModelUnsupported, match=said):
        convert_gguf(gguf, tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["x.gguf"]


@pytest.mark.engine
def test_the_report_and_the_model_say_what_is_used(tmp_path: Path) -> None:
    gguf = write_model(tmp_path / "x.gguf", Tiny(layers=1), tiny_bpe.metadata(template=JOINED))
    report = convert_gguf(gguf, tmp_path / "model")
    facts = Vocabulary.open(tmp_path / "model").facts
    assert report.chat_format == "ChatML"
    assert facts.chat_template == FORMATS[0].template
    assert facts.notes == report.notes
    assert "ChatML" in report.notes[0]


def as_written(talk: str) -> list[str]:
    """Good short conversations, and a talk in which s, u, a and v stand for the turns in their order."""
    names = dict(zip("suav", (marker for _, marker in CONVERSATIONS[2]), strict=True))
    short = ["<u>{u}</u><a>", "<s>{s}</s><u>{u}</u><a>"]
    return [text.format(**names) for text in (*short, talk)]


@pytest.mark.parametrize(
    ("talk", "why"),
    [
        ("<s>{s}</s><u>{u}</u><a>{a}</a><u>{v}</u><a>", ""),
        ("<u>{u}</u><a>{a}</a><u>{s} {v}</u><a>", ""),
        ("<u>{u}</u><a>{a}</a><u>{v}</u><s>{s}</s><a>", "out of order"),
        ("<s>{s}</s><a>{a}</a><u>{u}</u><u>{v}</u><a>", "out of order"),
        ("<s>{s}</s><u>{u}</u><a>{a}</a><u>{v}</u>", "begin like"),
        ("<s>{s}</s><u>{u}</u><a>{a}</a><u>{v}</u><b>", "begin like"),
        ("<s>{s}</s><u>{u}</u><a>{a}</a><u>{v} \n", "nothing after"),
        ("<s>{s}</s><u>{u}</u><a></a><u>{v}</u><a>", "exactly once"),
    ],
)
def test_what_a_talk_must_look_like(talk: str, why: str) -> None:
    found = flaw(as_written(talk))
    assert why in found
    assert bool(found) == bool(why)


@pytest.mark.engine
def test_a_template_that_never_ends_is_given_up(tmp_path: Path) -> None:
    endless = "{% for i in range(100000) %}{% for j in range(100000) %}{{ i * j }}{% endfor %}{% endfor %}"
    with pytest.raises(ModelUnsupported, match=r"did not finish|ended with code"):
        render(endless, "", "", [TALK], timeout_s=1)


def test_a_template_that_kills_mnn_is_replaced(tmp_path: Path) -> None:
    def dies(template: str, bos: str, eos: str) -> list[str]:
        raise ModelUnsupported("MNN ended with code -11")

    _, form, remark = choose(tokenizer(tmp_path, CHATML, "{{ fatal }}"), tmp_path, dies)
    assert form == "ChatML"
    assert "code -11" in remark
