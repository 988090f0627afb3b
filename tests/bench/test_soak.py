"""The soak: its arithmetic, which errors a fault explains, and a daemon that leaks beside one that does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assistant import paths
from assistant.bench import soak
from assistant.bench.daemons import OwnDaemon
from assistant.bench.mix import Asked, ask
from assistant.bench.observer import descendants
from assistant.bench.soak import Plan
from assistant.bench.soak_actors import Did, Gate
from assistant.bench.soak_faults import Fault, Harm, by_design, explained
from assistant.bench.soak_rest import DAEMON, FORK_SERVER, Place, Process, Rest, Watched, read
from assistant.bench.soak_verdict import WORKER_MIB_PER_100, Growth, findings, targets_of, theil_sen
from assistant.memory_orchestrator.ledger import LedgerReader, segment_name

LOCAL = "typed command, silent"


# --- arithmetic -----------------------------------------------------------------------------------------------------
def test_the_slope_is_the_median_of_all_pairs_of_a_life() -> None:
    assert theil_sen([[(0, 1), (1, 3), (2, 5), (3, 7), (4, 700)]]) == 2  # one reading that is far off changes nothing
    assert theil_sen([[(0, 5), (1, 6)], [(2, 50), (3, 51), (4, 52)]]) == 1  # another life is another process
    assert theil_sen([[(0, 1), (1, 2)]]) is None


def rest(number: int, *, mib: float = 20.0, fds: int = 30, threads: int = 4, unloaded: bool = True) -> Rest:
    """One each half minute, with 50 queries between."""
    processes = {DAEMON: Process(1, mib, mib, fds, threads), FORK_SERVER: Process(2, 20, 20, 6, 1)}
    if not unloaded:
        processes["llm"] = Process(3, mib * 2, mib * 2, 9, 2)
    held = sum(one.pss_mib for one in processes.values())
    return Rest(
        at_s=30.0 * number, queries=50 * number, unloaded=unloaded, processes=processes, pss_mib=held,
        anon_mib=held, accounted_mib=held, faults=(),
    )  # fmt: skip


def did(kind: str = LOCAL, begin: float = 0, end: float = 1, code: str = "", stage: str = "") -> Did:
    return Did(kind, begin, end, code, stage=stage or None, query=True)


def missed(rests: list[Rest], done: list[Did] | None = None, faults: tuple[Fault, ...] = ()) -> list[str]:
    found = findings(rests, done or [did()], faults, 600)
    return [one.what for one in targets_of(found, 600, [("timers", 0)]) if not one.met]


def test_what_stays_as_it_is_reaches_the_targets() -> None:
    assert missed([rest(n) for n in range(21)]) == []


def test_what_grows_is_told_by_name() -> None:
    grows = [rest(n, mib=20 + 0.2 * n) for n in range(21)]  # 24 MiB an hour
    assert missed(grows) == ["growth at rest, all, MiB an hour", "growth at rest, daemon, MiB an hour"]
    warm_up = [rest(n, mib=20 + min(n, 4)) for n in range(21)]
    assert missed(warm_up) == []
    assert missed([rest(n, fds=30 + n) for n in range(21)]) == ["more file descriptors, daemon"]
    assert missed([rest(n, threads=4 + n // 5) for n in range(21)]) == ["more threads, daemon"]
    loaded = [rest(n, mib=20 + n, unloaded=False) for n in range(8)]
    assert "growth of a worker, llm, MiB in 100 queries" in missed(loaded)


def test_a_run_that_is_too_short_to_judge_is_no_success() -> None:
    assert missed([rest(n) for n in range(3)]) == ["readings at rest that are missing (run longer)"]


def test_what_becomes_slow_when_nobody_else_asks_is_told() -> None:
    def took(ms: Callable[[int], float]) -> list[Rest]:
        return [msgspec.structs.replace(rest(n), alone_ms={LOCAL: ms(n)}) for n in range(21)]

    assert missed(took(lambda n: 20 + n)) == ["slower at the end, typed command, silent, alone, by"]
    assert missed(took(lambda n: 900 if n == 20 else 20)) == []  # once is no rule
    assert missed(took(lambda n: 1 + n / 10)) == []  # so little is noise
    loaded = [did(begin=float(n), end=n + (0.1 if n < 300 else 0.9)) for n in range(600)]
    assert missed(took(lambda n: 20), loaded) == []  # who else asks decides about that


def test_nothing_answered_is_no_success() -> None:
    assert missed([rest(n) for n in range(21)], [did(code="busy")]) == ["queries not answered, share"]


# --- errors ---------------------------------------------------------------------------------------------------------
def test_a_fault_explains_its_own_errors_of_its_own_stage_in_its_own_time() -> None:
    killed = (Fault("kill", 10, 10, "llm"),)
    assert explained(did(begin=9, end=11, code="stage-died", stage="llm"), killed)
    assert not explained(did(begin=9, end=11, code="stage-died", stage="asr"), killed)
    assert not explained(did(begin=9, end=11, code="internal", stage="llm"), killed)
    assert not explained(did(begin=20, end=21, code="stage-died", stage="llm"), killed)
    assert not explained(did(begin=8, end=9, code="stage-died", stage="llm"), killed)


def test_what_an_action_has_to_meet_is_no_fault_there_alone() -> None:
    assert by_design(did("say", code="no-voice"))
    assert not by_design(did("typed command, silent", code="cancelled"))
    assert by_design(did("cancelled question", code="cancelled"))
    assert by_design(did(code="busy"))


def test_a_closed_gate_waits_for_those_inside() -> None:
    gate = Gate()
    gate.open()
    assert gate.enter()
    assert not gate.close(0.01)
    gate.leave()
    assert gate.close(0.01)
    late = threading.Thread(target=gate.enter)
    late.start()
    late.join(0.05)
    assert late.is_alive()
    gate.end()
    late.join(5)
    assert not late.is_alive()


# --- daemons --------------------------------------------------------------------------------------------------------
TEMPLATES = "stages.intent.engine=templates"


def growth(module: str) -> Growth:
    """Of the worker that understands: 8 queries before each of 4 readings."""
    alone = [one for one in soak.ALONE if one.kind == LOCAL]
    with OwnDaemon([TEMPLATES, "memory.keep_alive_s=-1"], module=module) as daemon:
        watched, rests = Watched(daemon), []
        for number in range(1, 5):
            for asked in [Asked(LOCAL, "what time is it", b"", speech=False)] * 8:
                assert ask(daemon.client, asked).code == ""
            rests.append(read(watched, Place(float(number), 8 * number), unload=False, alone=alone))
        assert [one.faults for one in rests] == [()] * 4
        assert all(0 < one.alone_ms[LOCAL] < 5000 for one in rests)
        rests.append(read(watched, Place(5, 32), unload=True))
        assert set(rests[-1].processes) == {DAEMON, FORK_SERVER}
    return findings(rests, [did()], [], 5).workers["intent"]


@pytest.mark.timeout(60)
def test_a_worker_that_leaks_is_found_out() -> None:
    assert growth("tests.bench.leaking").mib_per_100 == pytest.approx(
        31.25, rel=0.1
    )  # a quarter of a MiB each, and two more
    assert growth("assistant.service").mib_per_100 < WORKER_MIB_PER_100


@pytest.mark.timeout(60)
def test_each_fault_happens_and_the_next_question_is_answered() -> None:
    gate = Gate()
    gate.open()
    with OwnDaemon([TEMPLATES, "memory.keep_alive_s=-1"]) as daemon:
        ledger = LedgerReader(segment_name(paths.daemon_owner(daemon.folder)))
        fork_servers = set()
        for kind in ("kill", "stop", "hang", "fork-server", "malformed"):
            assert ask(daemon.client, Asked(LOCAL, "what time is it", b"", speech=False)).code == ""
            workers = {row.pid for row in ledger.read().rows if row.pid}
            fork_servers.add(descendants(daemon.pid)[1])
            harm = Harm(daemon.folder, gate, 1, daemon.pid, ledger, None, 0.0, (kind,))
            if kind == "hang":
                threading.Timer(0.3, gate.close, (0,)).start()  # nobody waits for it: it ends with the run
            harm.act(daemon.client)
            gate.open()
            (fault,) = harm.faults
            assert (fault.kind, fault.stage is None) == (kind, kind in ("fork-server", "malformed"))
            dead = {"kill": 1, "fork-server": len(workers)}.get(kind, 0)
            assert until(lambda: sum(state_of(pid) in "Z" for pid in workers) == dead), kind  # noqa: B023
            assert not any(state_of(pid) == "T" for pid in workers), "whoever was stopped goes on"
            assert [did.code for did in harm.did] == [""] * (kind == "malformed"), "16 wrong messages, 16 errors"
        assert ask(daemon.client, Asked(LOCAL, "what time is it", b"", speech=False)).code == ""
        assert len(fork_servers) == 2, "another one was started"


def until(there: Callable[[], bool]) -> bool:
    give_up = time.monotonic() + 5
    while not (found := there()) and time.monotonic() < give_up:
        time.sleep(0.01)
    return found


def state_of(pid: int) -> str:
    """R, S, T (stopped), Z, as the kernel has it; nothing of a process that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.timeout(60)
def test_a_daemon_under_faults_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = soak.measure(Plan(minutes=0.04, kinds=(LOCAL, "cancelled question", "say")), (TEMPLATES,))
    assert found.queries
    assert found.timer_faults == ()
    assert found.findings.balance_faults == ()
    assert found.findings.errors.unexplained == {}
    assert found.tracebacks == 0
    assert {"status", "subscribe"} < set(found.actions)
    assert all(set(one.alone_ms) == (set() if one.unloaded else {LOCAL}) for one in found.rests)
    assert ("MISSED" in soak.table(found)) == (not found.reached)
    assert "nothing loaded" in capsys.readouterr().err
