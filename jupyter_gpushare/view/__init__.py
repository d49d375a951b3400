"""One view of all nodes: a service of the hub that schedulers report to, and that people read."""
