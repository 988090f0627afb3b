"""What the plots of benchmarks share: one style, and SVG that needs nothing else: no script, no font, no address."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from assistant.errors import UsageError

_SVG = "http://www.w3.org/2000/svg"
STAGE_COLOURS = {"base": "#8a8f98", "asr": "#4f81bd", "intent": "#9bbb59", "llm": "#c0504d", "tts": "#f0a848"}
"""The same in every plot; "base" is what belongs to no stage."""


def chart(colours: Sequence[str], **settings: Any) -> Any:
    """An empty pygal.XY, for lines of (x, y); `None` for y breaks a line."""
    import pygal
    from pygal.style import Style

    # pygal installs an import hook of an old kind for its plug-ins, which makes every later import warn
    sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "PluginImportFixer"]
    style = Style(
        background="white", plot_background="white", guide_stroke_color="#dddddd", major_guide_stroke_color="#dddddd",
        opacity="1", stroke_opacity="1", colors=tuple(colours),
        font_family="sans-serif", title_font_size=15, label_font_size=11, legend_font_size=12, major_label_font_size=11,
    )  # fmt: skip
    common = {"style": style, "width": 960, "height": 480, "js": [], "print_values": False, "legend_at_bottom": True}
    return pygal.XY(**{**common, **settings})


def svg(chart: Any) -> bytes:
    """Without scripts and comments: what a viewer shows without asking anybody, and what may stand in a README."""
    root = ElementTree.fromstring(_serialised(chart.render_tree()))  # noqa: S314 - it was made here, a moment ago
    _without_scripts(root)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def write(path: Path, document: bytes) -> None:
    """Raises `UsageError` when `path` cannot be written."""
    try:
        path.write_bytes(document)
    except OSError as error:
        raise UsageError(f"the plot {path} cannot be written: {error.strerror}") from None


def _serialised(tree: Any) -> bytes:
    from pygal.etree import etree

    # pygal uses lxml where it is there; from here on it is the same document for both
    text: bytes = etree.tostring(tree)
    return text


def _without_scripts(node: ElementTree.Element) -> None:
    children: Sequence[ElementTree.Element] = list(node)
    for child in children:
        if child.tag in (f"{{{_SVG}}}script", "script"):
            node.remove(child)
        else:
            _without_scripts(child)
