"""The main of a daemon that understands as well as any, and loses memory with each sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from assistant import service
from assistant.messages import Stage
from assistant.stages.intent_templates import TemplateIntent
from assistant.stages.registry import ENGINES

LOST = 256 << 10
_lost: list[bytes] = []


class Leaking(TemplateIntent):
    def run(self, request: Any) -> Iterator[Any]:
        _lost.append(os.urandom(1) * LOST)
        yield from super().run(request)


if __name__ == "__main__":
    ENGINES[Stage.INTENT, "templates"] = "tests.bench.leaking:Leaking"
    sys.exit(service.main(sys.argv[1:]))
