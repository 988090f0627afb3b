"""Asks with a recording and follows the events of everybody meanwhile: `python plain_ask.py QUESTION.wav`.

Needs pyzmq and the standard library, nothing of ours: this is what a program in any other language does.
"""

import json
import os
import sys
import wave

import zmq

STATE = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
ELSE = "/run/assistant" if os.geteuid() == 0 else f"{STATE}/assistant/run"
RUNTIME = os.environ.get("XDG_RUNTIME_DIR")
FOLDER = f"ipc://{RUNTIME}/assistant" if RUNTIME else f"ipc://{ELSE}"


def main(question: bytes, commands: zmq.Socket[bytes], events: zmq.Socket[bytes]) -> int:
    commands.connect(f"{FOLDER}/command.sock")
    events.connect(f"{FOLDER}/events.sock")
    for topic in ("stage-load-end", "state", "welcome"):
        events.subscribe(topic)
    if not events.poll(5000):
        sys.exit("no daemon runs")
    events.recv_multipart()  # the welcome: from here on, nothing is missed
    header = {"v": 1, "id": "my-1", "type": "ask", "data": {"text": None, "speech": True}}
    commands.send_multipart([json.dumps(header).encode(), question])
    sound = 0
    while ready := zmq.select([commands, events], [], [], 60)[0]:
        if events in ready:
            happened = json.loads(events.recv_multipart()[1])["data"]
            print(f"event {happened['seq']}: {happened.get('name')} {happened.get('data')}")
        if commands not in ready:
            continue
        frame, *pcm = commands.recv_multipart()
        data = (reply := json.loads(frame))["data"]
        match reply["type"]:
            case "audio":
                sound += len(pcm[0])  # s16le mono at data["sample_rate"]
            case "report" | "error":  # the latter: it never began
                answer = data.get("message") or f"{data['outcome']}: {data['reply']} ({sound} bytes of sound)"
                print(f"heard: {data.get('transcript')}\n{answer}")
                return int(data["exit_code"])
    sys.exit("the daemon says nothing any more")


if len(sys.argv) != 2:
    sys.exit(__doc__)
try:
    with wave.open(sys.argv[1]) as recording:
        if recording.getparams()[:3] != (1, 2, 16_000):
            raise wave.Error("16-bit samples, mono, 16 kHz are needed")
        question = recording.readframes(recording.getnframes())
except (OSError, EOFError, wave.Error) as error:
    sys.exit(f"no recording: {error}")
with zmq.Context() as context:
    context.linger = 0
    with context.socket(zmq.DEALER) as commands, context.socket(zmq.SUB) as events:
        sys.exit(main(question, commands, events))
