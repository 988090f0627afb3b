"""The small warm parent of all workers: `python -m assistant.stages.forkserver FD`.

Owns: forking a worker in a few milliseconds and reaping it. It imports MNN between requests, never before one: a
recogniser that is asked for early is forked early, and an LLM finds MNN there. It must stay single threaded, so it
imports no library that starts threads (onnxruntime does).

Why not multiprocessing's forkserver: that one imports the caller's main module again in every child, starts a second
helper process, and leaves a socket directory behind when its owner is killed.

Control socket (SOCK_SEQPACKET): `fork ID MODULE` with two descriptors (the new process's socket, its log pipe) ->
`pid ID PID`, or `fail ID ERRNO`; its end is told as `exit PID STATUS`. The process runs `MODULE.main(socket)`. End of
file ends the server, and the kernel then kills its workers.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import select
import signal
import socket
import sys
import traceback

PRELOAD_FIRST = ("assistant.stages.worker", "numpy")
"""What every worker needs: imported once, before the first fork, rather than by each of them at the same time."""
PRELOAD_IDLE = ("MNN.llm",)
"""What one of them needs: imported while nobody asks for anything."""
_PR_SET_PDEATHSIG = 1
_PR_SET_THP_DISABLE = 41
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    # Ctrl-C is for the process that the user started; it tells us by closing the socket
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent(int(sys.argv[2]))
    # a huge page for a few touched bytes is memory that the ledger would have to pay for
    _libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    control = socket.socket(fileno=int(sys.argv[1]))
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for name in PRELOAD_FIRST:
        _preload(name)
    waiting = list(PRELOAD_IDLE)
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [], 0 if waiting else None)
        if woken in ready:
            os.read(woken, 512)
            _reap(control)
        if control.fileno() in ready and not _serve(control):
            return
        if not ready and waiting:
            _preload(waiting.pop(0))


def _preload(name: str) -> None:
    """A library that does not import here will not import in a worker either, where it becomes a typed error."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        sys.stderr.write(f"forkserver: {name} not preloaded: {error}\n")


def _die_with_parent(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        control.send(f"exit {pid} {os.waitstatus_to_exitcode(status)}".encode())


def _serve(control: socket.socket) -> bool:
    message, fds, _, _ = socket.recv_fds(control, 256, 2)
    word, *rest = message.split(b" ")
    if word != b"fork" or len(rest) != 2 or len(fds) != 2:
        return False
    request, module = rest
    server = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:  # out of memory or processes: the next one may go better, and the workers live on
        control.send(b"fail %s %d" % (request, error.errno or 0))
    else:
        if pid == 0:
            _become_worker(module.decode(), control, fds[0], fds[1], server)
        control.send(b"pid %s %d" % (request, pid))
    finally:
        for fd in fds:
            os.close(fd)
    return True


def _become_worker(module: str, control: socket.socket, sock_fd: int, log_fd: int, server: int) -> None:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with_parent(server)
        control.close()
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log_fd, 1), (log_fd, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(log_fd)
        status = importlib.import_module(module).main(socket.socket(fileno=sock_fd))
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()  # into the log pipe; the daemon sees the exit status
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # past atexit and destructors: a live MNN object crashes in them, and the kernel frees everything anyway
        os._exit(status)


if __name__ == "__main__":
    main()
