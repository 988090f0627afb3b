import os
import signal

import pytest

from assistant.bench.daemons import terminable


class Deaf:
    """Python drops what a destructor raises, as it does in the callbacks of its import system."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_that_python_drops_ends_the_benchmark_at_the_next_step(number: signal.Signals) -> None:
    steps = list[str]()
    with pytest.raises(KeyboardInterrupt), terminable() as unless_interrupted:
        steps.append("first")
        unless_interrupted()
        Deaf(number)
        steps.append("second")
        unless_interrupted()
        steps.append("third")
    assert steps == ["first", "second"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_at_the_latest_at_its_end_and_signals_are_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(KeyboardInterrupt), terminable():
        Deaf(signal.SIGINT)
    with terminable():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
