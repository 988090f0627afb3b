"""What is looked at: the machine below a root, the user's folders, the settings. Imports `config`, `paths`.

`root` is a seam: /proc, /sys, /dev, /boot and /etc are read below it, so that a test looks at a tree of real files.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assistant import paths
from assistant.config import Config

MIB = 1024 * 1024
BOARD = 3 * 1024 * MIB
"""Bytes: machines of up to 2 GB, for which the advice about swap is meant, and a little more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Folders; none need exist."""

    runtime: Path = field(default_factory=paths.runtime_dir)
    state: Path = field(default_factory=paths.state_dir)
    cache: Path = field(default_factory=paths.cache_dir)
    models: Path = field(default_factory=paths.models_dir)
    config: Path = field(default_factory=lambda: paths.config_files()[-1].parent)
    catalog: Path = field(default_factory=paths.catalog_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    root: Path = Path("/")
    places: Places = field(default_factory=Places)
    config: Config = field(default_factory=Config)
    """As far as it could be read."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def command_line_fix(self, word: str) -> str:
        """The command that adds a word to the kernel's command line; the machine must be started again after it."""
        for name in ("boot/firmware/cmdline.txt", "boot/cmdline.txt"):  # Raspberry Pi OS, new and old
            if (self.root / name).is_file():
                return f"sudo sed -i '1s/$/ {word}/' /{name} && sudo reboot"
        if (self.root / "etc/default/grub").is_file():
            grub = f's/^GRUB_CMDLINE_LINUX="/&{word} /'
            return f"sudo sed -i '{grub}' /etc/default/grub && sudo update-grub && sudo reboot"
        return f"add {word} to the kernel's command line, as your boot loader wants it, and reboot"


def edit(file: Path) -> str:
    return f"{'sudoedit' if file.is_relative_to('/etc') else '${EDITOR:-nano}'} {shlex.quote(str(file))}"


def reinstall() -> str:
    """The command that puts a whole copy of us and of what we need in the place of a broken one."""
    return f"{shlex.quote(sys.executable)} -m pip install --force-reinstall local-voice-assistant"


def mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"
