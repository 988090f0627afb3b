"""Room for a whole context of keys and values at once, by a function that MNN's Python binding leaves out.

MNN makes room for 64 tokens more whenever it runs out, and copies all keys and values each time: on its heap it keeps
what it has freed, on a disk it waits until everything is written. `Llm::setKVCacheInfo` tells the next forward pass how
many cached tokens it is to move; MNN makes room for them first. Told of tokens that are not there, it makes room, moves
nothing of worth, and is told to forget them.

The library exports the function under its C++ name. Where it does not (another build), or the object does not turn out
to be where it should, there is no reserving and MNN grows its cache as it always does. Imports MNN's library alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_SET = "_ZN3MNN11Transformer3Llm14setKVCacheInfoEmmPii"
"""void MNN::Transformer::Llm::setKVCacheInfo(size_t add, size_t remove, int* reserve, int n_reserve)"""
_HISTORY = "_ZNK3MNN11Transformer3Llm17getCurrentHistoryEv"
"""size_t MNN::Transformer::Llm::getCurrentHistory() const"""

Announce = Callable[[int], None]
"""Tells MNN that its next forward pass is to make room for so many tokens more than it is given."""


def announcer(llm: Any) -> Announce | None:
    """`llm`: MNN's inner object, with at least one token in its cache. None where this cannot be done."""
    try:
        import _mnncengine

        library = ctypes.CDLL(_mnncengine.__file__)
        tell, history = getattr(library, _SET), getattr(library, _HISTORY)
    except (ImportError, OSError, AttributeError):
        return None
    history.argtypes, history.restype = [ctypes.c_void_p], ctypes.c_size_t
    tell.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int]
    tell.restype = None
    # the binding's object is Python's header and MNN's pointer
    model = ctypes.c_void_p.from_address(id(llm) + object.__basicsize__)
    known = llm.get_current_history()
    if not known or not model.value or history(model) != known:
        return None
    moved = (ctypes.c_int * 2)()  # begin and count; MNN keeps the pointer until the pass is over

    def announce(tokens: int) -> None:
        moved[0], moved[1] = 0, tokens
        tell(model, 0, 0, ctypes.addressof(moved), 1)

    return announce
