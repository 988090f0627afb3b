"""What engines on servers share: addresses, and results that are waited for without being deaf meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from assistant.errors import ConfigError, RemoteFailed
from assistant.stages.remote import HTTP_PORTS, WYOMING_PORTS, Address, Link, address_of, clean, results
from tests.stages.remote_servers import free_port, scripted, silent

NOWHERE = Address("tcp", "127.0.0.1", 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tcp://asr.local:10300", Address("tcp", "asr.local", 10300)),
        ("tcp://[::1]:10300", Address("tcp", "::1", 10300)),
        ("unix:///run/a%20b.sock", Address("unix", path="/run/a b.sock")),
    ],
)
def test_an_address_of_a_wyoming_server(text: str, found: Address) -> None:
    assert address_of(text, "k", WYOMING_PORTS) == found


def test_a_url_has_a_default_port_and_no_slash_at_its_end() -> None:
    assert address_of("https://ai.example/v1/", "k", HTTP_PORTS) == Address("https", "ai.example", 443, "/v1")
    assert str(address_of("http://[::1]:8080/v1", "k", HTTP_PORTS)) == "http://[::1]:8080/v1"


@pytest.mark.parametrize(
    "text",
    ["", "10300", "tcp://", "tcp://host", "tcp://host:99999", "http://host:1", "tcp://ho st:1", "tcp://h:1\n", "unix://a",
     "tcp://u:secret@host:1", "tcp://[::1:1", "tcp://hóst:1", "tcp://host:1?a=b"],
)  # fmt: skip
def test_what_is_no_address_is_a_config_error_that_names_the_key_and_no_password(text: str) -> None:
    with pytest.raises(ConfigError, match=r"stages\.asr\.uri") as caught:
        address_of(text, "stages.asr.uri", WYOMING_PORTS)
    assert "secret" not in caught.value.message


def test_text_of_a_server_is_text_for_everybody() -> None:
    assert clean("a\0b\ud800c", 10, NOWHERE) == "ab?c"
    assert clean("\x1b[31ma\x9b\u202e\tb\n", 20, NOWHERE) == "[31ma\tb\n"
    with pytest.raises(RemoteFailed, match="11 characters"):
        clean("x" * 11, 10, NOWHERE)


def test_results_come_in_order_and_more_wait_than_the_queue_holds() -> None:
    assert [one for one in results(lambda link: iter(range(500)), NOWHERE, 5) if one is not None] == list(range(500))


def test_each_wait_yields_and_the_deadline_counts_from_the_last_result() -> None:
    def work(link: Link) -> Iterator[int]:
        for number in range(3):
            time.sleep(0.3)
            yield number
        time.sleep(1)

    seen: list[int | None] = []
    started = time.monotonic()
    with pytest.raises(RemoteFailed, match=r"within 0\.5 s") as caught:
        seen.extend(results(work, NOWHERE, 0.5))
    assert caught.value.code == "remote-late"
    assert [one for one in seen if one is not None] == [0, 1, 2]
    assert seen.count(None) >= 15
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(("spoken_s", "least", "most"), [(0.0, 1.4, 3.0), (1.0, 2.4, 4.0)])
def test_a_server_that_sends_a_little_now_and_then_has_an_end(spoken_s: float, least: float, most: float) -> None:
    def work(link: Link) -> Iterator[int]:
        while True:
            time.sleep(0.2)
            yield 1

    started = time.monotonic()
    with pytest.raises(RemoteFailed, match=f"not finished after {1.5 + spoken_s:g} s") as caught:
        list(results(work, NOWHERE, 0.5, spoken_s))
    assert caught.value.code == "remote-late"
    assert least < time.monotonic() - started < most


def test_the_time_that_our_own_side_takes_is_not_the_servers() -> None:
    found = []
    for one in results(lambda link: iter(range(5)), NOWHERE, 0.2):
        time.sleep(0.3)  # more than all results may take together
        found.append(one)
    assert found == list(range(5))


def test_nobody_at_the_address_is_told_at_once() -> None:
    where = Address("tcp", "127.0.0.1", free_port())
    with pytest.raises(RemoteFailed, match="cannot be reached: Connection refused") as caught:
        list(results(lambda link: iter([link.connect()]), where, 5))
    assert caught.value.code == "remote-unreachable"


def test_a_name_that_nobody_knows_is_told() -> None:
    with pytest.raises(RemoteFailed, match=r"cannot be reached|gave no result"):
        list(results(lambda link: iter([link.connect()]), Address("tcp", "no-such-host.invalid", 1), 3))


def test_leaving_ends_the_thread_that_reads_and_its_connection() -> None:
    def work(link: Link) -> Iterator[bytes]:
        sock = link.connect()
        yield b"connected"
        yield sock.recv(1)

    before = threading.active_count()
    with scripted(silent) as port:
        stream = results(work, Address("tcp", "127.0.0.1", port), 30)
        assert next(stream) == b"connected"
        assert next(stream) is None
        stream.close()  # type: ignore[attr-defined]
        until = time.monotonic() + 2
        while any(one.name == "remote" for one in threading.enumerate()) and time.monotonic() < until:
            time.sleep(0.01)
        assert not any(one.name == "remote" for one in threading.enumerate())
    assert threading.active_count() <= before + 2


def test_a_connection_that_is_made_after_the_end_is_closed() -> None:
    with scripted(silent) as port:
        link = Link(Address("tcp", "127.0.0.1", port), 5)
        link.break_off()
        with pytest.raises(OSError, match="not wanted"):
            link.connect()
        ours, theirs = socket.socketpair()
        with theirs:
            with pytest.raises(OSError, match="not wanted"):
                link.hold(ours)
            assert ours.fileno() == -1


def test_an_error_of_our_own_stays_what_it_is() -> None:
    def work(link: Link) -> Iterator[int]:
        if link.where is NOWHERE:
            raise ConfigError("the key is empty")
        yield 0

    with pytest.raises(ConfigError, match="key is empty"):
        list(results(work, NOWHERE, 5))
