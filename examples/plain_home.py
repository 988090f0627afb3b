"""A fan that is switched by voice, with pyzmq and the standard library alone: `python plain_home.py`. Ends with Ctrl-C.

"Turn on the fan" comes here as soon as this program has registered, and until it leaves. A daemon that is restarted has
to be told again: start this program anew (`home.py` shows how to notice).
"""

import contextlib
import itertools
import json
import os
import sys

import zmq

STATE = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
ELSE = "/run/assistant" if os.geteuid() == 0 else f"{STATE}/assistant/run"
RUNTIME = os.environ.get("XDG_RUNTIME_DIR")
FOLDER = f"ipc://{RUNTIME}/assistant" if RUNTIME else f"ipc://{ELSE}"
numbers = itertools.count(1)


def main(socket: zmq.Socket[bytes]) -> None:
    def send(kind: str, data: dict[str, object]) -> None:
        socket.send_json({"v": 1, "id": str(next(numbers)), "type": kind, "data": data})

    socket.connect(f"{FOLDER}/command.sock")
    send("register", {"intents": ["HassTurnOn", "HassTurnOff"], "names": {"name": ["fan"]}})
    if not socket.poll(1000):  # what was sent is kept, and goes to the daemon when it comes
        print(f"waiting for a daemon at {FOLDER}", flush=True)
    while True:
        told = json.loads(socket.recv_multipart()[0])
        data = told["data"]
        match told["type"]:
            case "registered":
                print("ready", flush=True)
            case "handle" if data["slots"].get("name") == "fan":
                state = "on" if data["intent"] == "HassTurnOn" else "off"
                print(f"{data['text']!r}: the fan is {state}", flush=True)
                send("answer", {"query_id": data["query_id"], "speech": f"The fan is {state}."})
            case "handle":
                send("answer", {"query_id": data["query_id"], "error": "I only have a fan."})
            case "error" if told["parent"] == "1":
                sys.exit(f"not registered: {data['message']}")
            case "error":  # an answer that came too late
                print(data["message"], flush=True)


with contextlib.suppress(KeyboardInterrupt), zmq.Context() as context:
    context.linger = 0
    with context.socket(zmq.DEALER) as dealer:
        main(dealer)
