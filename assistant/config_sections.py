"""The settings themselves: one frozen section each, with its defaults. Imports nothing of ours; decides nothing."""

from __future__ import annotations

import msgspec


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields carry their unit in the name."""


class Audio(Section, frozen=True, kw_only=True):
    enabled: bool = True
    """False runs without microphone and speaker."""
    input: str = ""
    """Name or regular expression of the microphone; empty = the system's default."""
    output: str = ""
    """The same of the speaker."""
    volume_percent: float = 100
    """How loud it speaks, as ears hear it: 50 is an eighth of the amplitude."""
    duck_command: tuple[str, ...] = ()
    """Run when the assistant begins to listen, to make other sound quieter; a program and its arguments, no shell."""
    unduck_command: tuple[str, ...] = ()
    """Run when it is idle again."""


class Cues(Section, frozen=True, kw_only=True):
    """Short sounds. Each is "tone" (ours), "off", or the path of a sound file."""

    awake: str = "tone"
    """The wake word was heard, and nobody speaks on: say what you want."""
    done: str = "tone"
    """Nothing was said, or nothing was understood: it does not listen any more."""
    error: str = "tone"
    """Something failed; `assistant status` and the log say what."""
    thinking: str = "tone"
    """An answer is on its way, and takes its time."""
    timer: str = "tone"
    """A timer has ended; every second until it is stopped."""
    thinking_after_s: float = 1.0
    """Without a sound of the answer, from when on `thinking` is heard."""


class Wake(Section, frozen=True, kw_only=True):
    engine: str = "micro"
    """micro: the one there is (microWakeWord)."""
    words: tuple[str, ...] = ("hey_jarvis", "okay_nabu")
    """Empty = the assistant is woken by `assistant listen` alone."""
    stop_words: tuple[str, ...] = ("stop",)
    """Heard while it speaks; each needs a model: `assistant models fetch wake-stop`."""
    thresholds: tuple[str, ...] = ()
    """Of single words, 0..1: "hey_jarvis=0.9". The others as the models' makers advise."""
    refractory_s: float = 2.0
    """After a detection, no other one of the same word."""
    vad_gate: bool = False
    """Count a wake word only where voice activity is found as well."""
    models_dir: str = ""
    """A folder of more models: NAME.json and its .tflite file."""


class Listen(Section, frozen=True, kw_only=True):
    """When somebody has begun and finished speaking."""

    silence: str = "normal"
    """normal | relaxed | aggressive: 0.7, 1.25 or 0.25 s of silence end an utterance."""
    speech_start_s: float = 0.3
    """So much speech begins an utterance; a click does not."""
    no_speech_s: float = 5
    """Nobody says anything after the wake word: it stops listening."""
    max_s: float = 15
    """Nobody is listened to for longer."""
    pre_roll_s: float = 1
    """Kept of what was heard before the wake word was understood."""


class Memory(Section, frozen=True, kw_only=True):
    budget_mib: float = 0
    """0 = find out (cgroup, machine)."""
    margin_mib: float = 300
    """Always stays free; proportionally less on machines (or in cgroups) of less than 2 GB."""
    keep_alive_s: float = 300
    """How long an idle stage stays loaded; 0 = unload at once, -1 = never unload."""


class Asr(Section, frozen=True, kw_only=True):
    engine: str = "whisper"
    """whisper | vosk | wyoming; "wyoming" sends recordings to the server at `uri`."""
    model: str = "whisper-tiny.en"
    """A name from `assistant models list`."""
    language: str = ""
    """Of a multilingual whisper model, for example "fr"; empty = found out from the audio."""
    uri: str = "tcp://127.0.0.1:10300"
    """Of a Wyoming server: tcp://host:port or unix:///path."""
    remote_model: str = ""
    """That the server shall use; empty = its own choice."""
    deadline_s: float = 10
    """To the server's first result, and between results."""
    fallback: bool = True
    """When the server fails, `model` takes its place, if it is installed."""
    threads: int = 0
    """0 = physical cores."""
    start_timeout_s: float = 30
    """Longest start of the worker, the loading included."""
    step_timeout_s: float = 60
    """Longest silence of a busy worker before it is taken for hung."""


class Intent(Section, frozen=True, kw_only=True):
    engine: str = "classifier"
    """classifier | templates; "templates" understands sentences word for word alone."""
    language: str = "en"
    """Of the sentences that are understood: a language of Home Assistant's sentences; one at a time."""
    threshold: float = 0.0
    """Of the classifier's score, 0 to 1, from which on a sentence is a command; 0 = as the model was made."""
    handler_timeout_s: float = 3.0
    """For the answer of another program that carries out an intent."""
    start_timeout_s: float = 20
    """Longest start of the worker, the loading included."""
    step_timeout_s: float = 10
    """Longest silence of a busy worker before it is taken for hung."""


class Llm(Section, frozen=True, kw_only=True):
    engine: str = "mnn"
    """mnn | openai; "openai" sends conversations to the OpenAI-compatible server at `url`."""
    model: str = "smollm2-135m-instruct"
    """A name from `assistant models list`."""
    small_model: str = ""
    """Taken instead while the machine is pressed hard (heat, memory, supply); empty = none."""
    context_tokens: int = 1024
    """Of a conversation: system prompt, history, question and answer together."""
    slots: int = 1
    """Conversations whose keys and values stay in memory; more take turns."""
    kv_cache: str = "auto"
    """memory | disk | auto: where keys and values lie. On a disk they can be written out instead of filling memory.
    auto = on disk from 160 MiB of them on."""
    attention_mode: int = 8
    """MNN's: 8 or 0 (without flash attention). The others keep 8-bit or 4-bit keys, which fit one piece of a prompt
    only."""
    conversation_ttl_s: float = 300
    """How long a conversation is remembered after its last turn."""
    prefill_chunk: int = 128
    """Tokens of a prompt at once; a multiple of 8, so that MNN computes whole rows."""
    threads: int = 0
    """0 = physical cores, less one for audio where there are four or more."""
    system_prompt: str = "You are a voice assistant. Answer in one short sentence."
    """Empty = what the model's own chat template says."""
    max_new_tokens: int = 96
    """Longest answer."""
    temperature: float = 0.0
    """0 = greedy: always the likeliest token."""
    top_k: int = 40
    """Of a temperature above 0: so many likeliest tokens to choose from; 0 = as many as there may be (256)."""
    top_p: float = 0.95
    """The likeliest that make up this probability together."""
    min_p: float = 0.0
    """None less likely than this part of the likeliest."""
    repetition_penalty: float = 1.1
    """What was said already is so much less likely; 1 = off."""
    seed: int = -1
    """-1 = a new one for each answer."""
    url: str = "http://127.0.0.1:8080/v1"
    """Of an OpenAI-compatible server, with its version; http or https."""
    remote_model: str = ""
    """That the server shall use; empty = its own choice."""
    api_key_file: str = ""
    """A file with the server's key, and nothing else."""
    api_key_env: str = ""
    """Instead of a file: the name of the environment variable that holds the key."""
    ca_file: str = ""
    """Certificates to trust instead of the system's, for a server with one of its own."""
    deadline_s: float = 10
    """To the server's first text, and between texts."""
    fallback: bool = True
    """When the server fails, `model` takes its place, if it is installed."""
    start_timeout_s: float = 120
    """The first start of a model builds its mapped weights, which takes seconds per GB."""
    step_timeout_s: float = 60
    """Longest silence of a busy worker before it is taken for hung."""


class Tts(Section, frozen=True, kw_only=True):
    engine: str = "piper"
    """piper | piper-mnn | wyoming; "wyoming" sends answers to the server at `uri`."""
    model: str = "en_US-joe-medium"
    """A name from `assistant models list`."""
    language: str = ""
    """By whose rules text is read out, for example "de"; empty = as the voice's file or name says, else English."""
    uri: str = "tcp://127.0.0.1:10200"
    """Of a Wyoming server: tcp://host:port or unix:///path."""
    remote_model: str = ""
    """The voice that the server shall use; empty = its own choice."""
    deadline_s: float = 10
    """To the server's first sound, and between pieces of it."""
    fallback: bool = True
    """When the server fails, `model` takes its place, if it is installed."""
    length_scale: float = 1.0
    """How long sounds take: 1.2 speaks slower, 0.9 faster."""
    threads: int = 0
    """0 = physical cores."""
    start_timeout_s: float = 30
    """Longest start of the worker, the loading included."""
    step_timeout_s: float = 60
    """Longest silence of a busy worker before it is taken for hung."""


class Stages(Section, frozen=True, kw_only=True):
    asr: Asr = Asr()
    intent: Intent = Intent()
    llm: Llm = Llm()
    tts: Tts = Tts()


class Api(Section, frozen=True, kw_only=True):
    """The daemon's sockets; see docs/protocol.md. Those for programs of this machine are always there."""

    tcp: str = ""
    """tcp://ADDRESS:PORT: commands at PORT, controls at the next one, events at the one after. Encrypted, and for
    listed clients alone (docs/security.md). Empty = not reachable from the network."""
    keys_dir: str = ""
    """Empty = the folder `keys` beside the user's config.toml."""
    deadline_s: float = 30
    """A query that could not be answered within this time, at the pace that was measured, is refused at once."""


class House(Section, frozen=True, kw_only=True):
    """What commands may name, beside what other programs register. "kitchen lamp|big light" is one thing of two names;
    the first is what whoever carries out the command is told."""

    names: tuple[str, ...] = ()
    """Of devices."""
    areas: tuple[str, ...] = ()
    """Of rooms."""
    floors: tuple[str, ...] = ()
    """Of floors."""
    protected: tuple[str, ...] = ()
    """Names of devices that are switched only after a yes, such as "front door"."""


class Wyoming(Section, frozen=True, kw_only=True):
    """Home Assistant's protocol; see docs/home-assistant.md."""

    enabled: bool = False
    """True opens the bridge."""
    uri: str = "tcp://127.0.0.1:10700"
    """tcp://ADDRESS:PORT of this machine alone, or unix:///PATH: the protocol knows no passwords."""


class Metrics(Section, frozen=True, kw_only=True):
    """For Prometheus, at http://ADDRESS:PORT/metrics."""

    enabled: bool = False
    """True opens the page."""
    address: str = "127.0.0.1"
    """Of this machine alone."""
    port: int = 9107
    """Of that address."""


class Log(Section, frozen=True, kw_only=True):
    level: str = "warning"
    """debug | info | warning | error."""
    format: str = "text"
    """text | json: one object a line."""


class Debug(Section, frozen=True, kw_only=True):
    recordings: bool = False
    """Keep each spoken query, its sound and its report, in the state directory."""
    recordings_max_mib: float = 100
    """The oldest go when all of them are larger."""
    recordings_max_age_days: float = 7
    """Older ones go."""
