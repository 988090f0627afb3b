"""What the converter needs of the file that it converts, so that it need not be a file. Imports types from `gguf`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from assistant.model_store.gguf import TensorInfo


class TensorSource(Protocol):
    """Metadata and tensors as a GGUF file has them; `GgufFile` is one."""

    path: Path
    """What messages call it."""
    metadata: dict[str, Any]
    """int, float, bool, bytes (strings), numpy arrays, `StringArray`."""
    tensors: dict[str, TensorInfo]

    def read(self, tensor: TensorInfo, first: int = 0, rows: int | None = None) -> NDArray[np.uint8]:
        """Raw blocks of some rows, uint8 [rows, row_bytes]: the same bytes for a row whenever it is asked for."""
        ...
