"""What is open inside a `with`, and closed behind it. Imports nothing of ours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """`with Thing() as thing:`; an exception inside aborts it instead."""

    @abstractmethod
    def close(self) -> None: ...

    def abort(self) -> None:
        """What it was for will not be reached."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
