"""The harness's own speed and truthfulness, beside its peers: ``python benchmarks/client.py``."""
