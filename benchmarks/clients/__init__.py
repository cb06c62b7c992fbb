"""One client a file; each is run in a process of its own by ``benchmarks.clients.run``."""
