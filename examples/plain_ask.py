"""Asks with a recording and follows the events of everybody meanwhile: `python plain_ask.py QUESTION.wav`.

Needs pyzmq and the standard library, nothing of ours: this is what a program in any other language does.
"""

import json
import os
import sys
import wave

import zmq

FOLDER = f"ipc://{os.environ['XDG_RUNTIME_DIR']}/assistant"


def main(path: str, commands: zmq.Socket[bytes], events: zmq.Socket[bytes]) -> int:
    with wave.open(path) as recording:  # 16-bit, mono, 16 kHz
        question = recording.readframes(recording.getnframes())
    commands.connect(f"{FOLDER}/command.sock")
    events.connect(f"{FOLDER}/events.sock")
    for topic in ("stage-load-end", "state", "welcome"):
        events.subscribe(topic)
    if not events.poll(5000):
        sys.exit("no daemon runs")
    events.recv_multipart()  # the welcome: from here on, nothing is missed
    header = {"v": 1, "id": "my-1", "type": "ask", "data": {"text": None, "speech": True}}
    commands.send_multipart([json.dumps(header).encode(), question])
    poller = zmq.Poller()
    poller.register(commands, zmq.POLLIN)
    poller.register(events, zmq.POLLIN)
    sound = 0
    while ready := dict(poller.poll(60_000)):
        if events in ready:
            happened = json.loads(events.recv_multipart()[1])["data"]
            print(f"event {happened['seq']}: {happened.get('name')} {happened.get('data')}")
        if commands not in ready:
            continue
        frame, *pcm = commands.recv_multipart()
        reply = json.loads(frame)
        data = reply["data"]
        match reply["type"]:
            case "audio":
                sound += len(pcm[0])  # s16le mono at data["sample_rate"]
            case "report":
                print(f"heard: {data['transcript']}\n{data['outcome']}: {data['reply']} ({sound} bytes of sound)")
                return int(data["exit_code"])
            case "error":  # it never began
                print(data["message"], file=sys.stderr)
                return int(data["exit_code"])
    sys.exit("the daemon says nothing any more")


if len(sys.argv) != 2:
    sys.exit(__doc__)
with zmq.Context() as context:
    context.linger = 0
    with context.socket(zmq.DEALER) as commands, context.socket(zmq.SUB) as events:
        sys.exit(main(sys.argv[1], commands, events))
