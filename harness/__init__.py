"""b70-bench: a benchmark harness and evidence recorder for vLLM XPU on Intel Arc Pro B70."""

__version__ = "0.1.0"
