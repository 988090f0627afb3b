"""Has a text spoken at the daemon's speaker: `python say.py "Dinner is ready."`. The blocking client."""

import sys

from assistant.api.client import Client
from assistant.errors import AssistantError

if len(sys.argv) != 2:
    sys.exit(__doc__)
try:
    with Client() as client:
        report = client.say(sys.argv[1])
except AssistantError as error:  # every error has a stable code, and says what to do
    print(f"{error.code}: {error.message}", file=sys.stderr)
    sys.exit(int(error.exit_code))
print(f"said: {report.reply}")
