"""The ``bench`` command with shorter deadlines for answers than the contract's, so that a hang costs a test seconds."""

from harness.cli import main
from harness.wire.transport import Deadlines

SHORT = Deadlines(connect_s=5.0, first_byte_s=6.0, idle_s=4.0, total_s=60.0)

if __name__ == "__main__":
    Deadlines.__init__.__defaults__ = (SHORT.connect_s, SHORT.first_byte_s, SHORT.idle_s, SHORT.total_s)
    main()
