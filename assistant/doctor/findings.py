"""What the doctor can find, by id: why each matters, and in general what mends it. Imports nothing of ours; decides
nothing. docs/doctor.md shows the same table, and a test compares the two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Level = Literal["ok", "advice", "problem"]


class Kind(NamedTuple):
    why: str
    """One sentence."""
    mend: str
    """In general, for the docs; empty = there is nothing to mend."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was looked at."""

    id: str
    level: Level
    found: str
    fix: str = ""
    """The command (or the few words) that mends it on this machine."""
    mend: Callable[[], str] | None = field(default=None, compare=False, repr=False)
    """Does it without being root, and tells what it did. Raises `OSError` or `AssistantError`."""

    @property
    def why(self) -> str:
        return KINDS[self.id].why

    def to_dict(self) -> dict[str, Any]:
        """`{id, level, found, why, fix, fixable}`; `fixable` = `--fix` does it."""
        return {
            "id": self.id,
            "level": self.level,
            "found": self.found,
            "why": self.why,
            "fix": self.fix,
            "fixable": self.mend is not None,
        }


KINDS: dict[str, Kind] = {
    # --- memory
    "memory": Kind("All stages together must fit into the usable part of it.", ""),
    "memory-too-small": Kind(
        "A stage that needs more than the whole budget is always refused, so no question can be answered.",
        "a smaller model, a larger `memory.budget_mib` or cgroup limit, or more memory",
    ),
    "memory-taken": Kind(
        "As long as other programs hold so much, questions are refused with `memory-taken`.",
        "an end of what is not needed",
    ),
    "memory-group-off": Kind(
        "The kernel counts no memory for groups, so the limits of a service or a container do nothing.",
        "`cgroup_enable=memory` on the kernel's command line",
    ),
    "swap": Kind("Swap takes what is rarely used out of the way of the models.", ""),
    "swap-missing": Kind(
        "Without swap, what the system hardly ever uses takes memory away from the models.",
        "zram of half the memory with lz4 (`zram-tools`)",
    ),
    "swap-on-disk": Kind(
        "A card or a disk gives pages back far slower than compressed memory does, and a card wears out.",
        "zram with a higher priority, or no swap on the card",
    ),
    "swap-full": Kind(
        "With swap full, the kernel drops the mapped weights next, and each word waits for the disk.",
        "`assistant unload`, or fewer other programs",
    ),
    "zram-algorithm": Kind(
        "lz4 gives pages back faster than the other algorithms, and a spoken answer waits for that.",
        "`ALGO=lz4` for zram",
    ),
    "zram-size": Kind(
        "Less than a quarter of the memory hardly helps; more than all of it fills the memory with compressed pages.",
        "`PERCENT=50` for zram",
    ),
    "huge-pages": Kind("Pages of 2 MiB are right only where a program asks for them.", ""),
    "huge-pages-always": Kind(
        "Each heap then grows in steps of 2 MiB, and a small machine with several processes feels that.",
        "`madvise` instead of `always`",
    ),
    # --- processor
    "governor": Kind("It decides how fast the clock follows the work.", ""),
    "governor-slow": Kind(
        "The clock stays low while an answer is computed, so that it comes much later.",
        "another `scaling_governor`",
    ),
    "temperature": Kind("A hot processor is slowed down by kernel or firmware.", ""),
    "too-hot": Kind(
        "At its limit the processor is slowed down, and answers come later and are kept shorter.",
        "a heatsink, a fan, or a cooler place",
    ),
    "supply": Kind("A weak supply makes the firmware cap the clock.", ""),
    "supply-weak": Kind(
        "With too little voltage the firmware caps the clock, and cards and USB microphones fail at random.",
        "the supply that the board's maker names, and a short cable",
    ),
    "throttled": Kind("The firmware holds the clock down, so that answers come later.", "cooling and supply"),
    # --- kernel
    "pressure": Kind("From memory stalls (PSI) the assistant learns early that it must hold less.", ""),
    "pressure-missing": Kind(
        "Without PSI the assistant notices a lack of memory later, from the free memory alone.",
        "`psi=1` on the kernel's command line",
    ),
    "open-files": Kind("Each client and each layer of the LLM's keys and values needs open files.", ""),
    "open-files-few": Kind(
        "Clients beyond the limit are refused, and the LLM's keys and values lie on the heap, where they take more.",
        "a higher `LimitNOFILE` (service) or `nofile` (limits.conf)",
    ),
    "shared-memory": Kind("The memory ledger and the LLM's keys and values lie in /dev/shm.", ""),
    "shared-memory-missing": Kind(
        "Without a /dev/shm that can be written there is no memory ledger, and the daemon does not start.",
        "a tmpfs at /dev/shm",
    ),
    "shared-memory-small": Kind(
        "The LLM's keys and values do not fit, and take more memory elsewhere.",
        "a larger tmpfs at /dev/shm",
    ),
    # --- sound
    "sound": Kind("The assistant hears and speaks through PortAudio.", ""),
    "sound-library": Kind(
        "Without PortAudio no microphone and no speaker can be opened.", "the system's package `libportaudio2`"
    ),
    "sound-hangs": Kind(
        "A sound system that does not answer keeps the assistant deaf and silent.", "a restart of the sound server"
    ),
    "sound-broken": Kind(
        "PortAudio fails, or ends every process that asks it, so that nothing is heard and nothing sounds.",
        "ALSA's settings (`~/.asoundrc`), and a restart of the sound server",
    ),
    "sound-no-device": Kind(
        "Nobody is heard, or no answer sounds, until there is one.",
        "a microphone and a speaker, another `audio.input` or `audio.output`, or `audio.enabled = false`",
    ),
    "sound-permission": Kind(
        "The kernel's sound devices are closed to this user, so that ALSA shows none of them.",
        "membership of the group `audio`",
    ),
    # --- models and what is made of them
    "models": Kind("Each stage needs a whole model.", ""),
    "models-unreadable": Kind(
        "Without the list of models no model can be found or fetched.", "another installation of the assistant"
    ),
    "model-missing": Kind("The stage refuses all work until its model is here.", "`assistant models fetch NAME`"),
    "model-unreachable": Kind(
        "Its disk does not answer, or fails: questions are refused until it does.", "the kernel's log"
    ),
    "model-damaged": Kind("An engine could crash on it or talk nonsense, so it is refused.", "the command named"),
    "model-outdated": Kind(
        "It works, but the catalog or the converter has moved on since it was made.", "`assistant models fetch NAME`"
    ),
    "wake-word-missing": Kind(
        "Nobody is heard who says this word.", "`assistant models fetch wake-NAME`, or another word in the settings"
    ),
    "model-unfit": Kind(
        "The settings name a model that the stage's engine cannot use.", "another `engine` or `model` in the settings"
    ),
    "caches": Kind("Files that were made from the models for this machine make the first answer early.", ""),
    "cache-damaged": Kind(
        "It would be made again in the middle of a question, which then takes seconds longer.",
        "`assistant doctor --fix`; the next start of the stage makes it again",
    ),
    "cache-stale": Kind(
        "No model that is here uses it, and it takes room on the disk.", "`assistant doctor --fix`"
    ),
    # --- disk and folders
    "disk": Kind("Models, their caches, timers and settings need room.", ""),
    "disk-full": Kind(
        "Timers cannot be kept and models cannot be prepared on a full disk.", "room, or another disk (XDG_*_HOME)"
    ),
    "disk-low": Kind(
        "The next model or its cache will not fit.", "room, or another disk (XDG_DATA_HOME, XDG_CACHE_HOME)"
    ),
    "folders": Kind("Settings, keys, timers and sockets must be ours alone.", ""),
    "home-unset": Kind(
        "The system's list of users then says where files are kept, and whoever has a HOME may look elsewhere.",
        "`export HOME=...`",
    ),
    "runtime-dir-unset": Kind(
        "Other programs look for the daemon's sockets below $XDG_RUNTIME_DIR.", "`export XDG_RUNTIME_DIR=...`"
    ),
    "runtime-dir-long": Kind(
        "The path of a socket may have 107 bytes, so that the daemon cannot start.", "a shorter XDG_RUNTIME_DIR"
    ),
    "folder-missing": Kind("It is made when it is first needed, if it can be.", "`assistant doctor --fix`"),
    "folder-mode": Kind(
        "Other users of this machine could read what is private, or change it.", "`assistant doctor --fix`, or chmod"
    ),
    "folder-owner": Kind(
        "Whoever owns a folder can put other files in the place of ours.", "`sudo chown`"
    ),
    "folder-not-writable": Kind(
        "What belongs there is lost: timers, prepared models, or sockets.", "`chmod u+w`, or a disk that can be written"
    ),
    # --- daemon
    "sockets": Kind("Through them all other verbs and programs reach the daemon.", ""),
    "socket-stale": Kind(
        "A daemon that was killed left it; whoever connects to it waits for nobody.", "`assistant doctor --fix`"
    ),
    "socket-blocked": Kind("Something that is no socket is in its place.", "`rm -r`"),
    "daemon-silent": Kind("It still has its memory and its microphone, and answers nobody.", "an end and a new start"),
    "daemon-outdated": Kind("It runs code that has been replaced since it was started.", "a restart"),
    "daemon-other": Kind(
        "Two daemons of the same user share memory and microphone without knowing of each other.", "an end of one"
    ),
    "ledger-other": Kind(
        "Another version of the assistant writes it, so `ps` and `top` cannot read it.",
        "an end of that one, and a new start",
    ),
    # --- settings, versions, service
    "settings": Kind("They decide about all else.", ""),
    "settings-broken": Kind("The daemon and most verbs refuse to start with them.", "the line named, in an editor"),
    "settings-refused": Kind("The daemon refuses to start with them.", "the setting named"),
    "sentences": Kind("They add to what is understood without the LLM.", ""),
    "sentences-broken": Kind(
        "A file with a mistake is left out as a whole, and what it would add is not understood.",
        "the line named, in an editor; a running daemon notices it",
    ),
    "versions": Kind("Reports of faults need them.", ""),
    "python-old": Kind("The assistant is written for Python 3.11 and later.", "a newer Python"),
    "package-missing": Kind("What needs it fails when it is first used.", "`pip install`"),
    "package-version": Kind("It is not the version that the assistant was tested with.", "`pip install`"),
    "service": Kind("A unit makes systemd start the assistant with the machine, and again when it fails.", ""),
    "service-broken": Kind("The service cannot be started.", "`assistant install-service`"),
    "service-linger": Kind(
        "A user's service ends with his last session, and starts with the first.", "`loginctl enable-linger`"
    ),
    # --- the doctor himself
    "not-looked-at": Kind("What is wrong there stays unknown.", "a report of this fault, with the text that was found"),
    "looked-too-long": Kind("Whatever did not answer the doctor may not answer the assistant either.", ""),
}  # fmt: skip
