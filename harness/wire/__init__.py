"""The wire: sockets and kernel timestamps, the capture file, and the pure path bytes → events → Completion."""
