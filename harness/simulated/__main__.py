"""``python -m harness.simulated --port P …``: a process that answers as a vLLM server would."""

import sys

from harness.simulated.settings import parse
from harness.simulated.startup import run

if __name__ == "__main__":
    sys.exit(run(parse()))
