"""Which converter and which MNN a converted model was made by. Imports nothing of ours; never imports MNN.

A converted model whose manifest names other versions is converted again by `assistant models fetch`. Raise a number
here whenever that converter writes something different for the same source.
"""

from __future__ import annotations

GGUF_CONVERTER = "gguf-4"
VOICE_CONVERTER = "voice-3"


def mnn_version() -> str:
    """The installed MNN's version, read from its package metadata; empty when MNN is not installed."""
    from importlib import metadata

    try:
        return metadata.version("MNN")
    except metadata.PackageNotFoundError:
        return ""
