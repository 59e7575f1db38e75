"""What agent and server tell Prometheus: the text format, and the readings that both know.

exposition.py  the text format 0.0.4: escaping, order, no sample twice
gpus.py        a GPU, its instances and who holds it

What only one of them knows stands in `agent/metrics.py` and `cluster/metrics.py`.
"""
