"""The parts of ``benchmarks/load.py``: what streams ask for, the process that is measured, the account, the rule."""
