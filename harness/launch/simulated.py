"""The simulated engine: the embedded server, started and held like any other process."""

import sys
from pathlib import Path

import harness
from harness.launch.process import SYSTEM_PATH, ProcessEngine, Program
from harness.launch.server import Places

MODULE = "harness.simulated"


def simulated_program(places: Places) -> Program:
    """This Python with the embedded server; started where the package lies, so that it is this one."""
    del places
    checkout = str(Path(harness.__file__).parent.parent.absolute())
    return Program([sys.executable, "-m", MODULE], ["python", "-m", MODULE], SYSTEM_PATH, checkout)


def simulated_engine() -> ProcessEngine:
    """See ``Engine``."""
    return ProcessEngine(simulated_program)
