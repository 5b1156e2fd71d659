"""A plug-in with an exit handler and something left in a buffer."""

import atexit
import os
import pathlib

atexit.register(lambda: pathlib.Path(os.environ["EXIT_FILE"]).write_text("ran"))
LEFT_IN_BUFFER = open(os.environ["EXIT_FILE"] + ".buffer", "w")  # noqa: SIM115
LEFT_IN_BUFFER.write("once")
