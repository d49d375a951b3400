"""What runs on a node of Kubernetes beside its scheduler: the device plugin, which gives a pod its
seat, and a look at which pods have which devices.

Only `device_plugin.py`, `pod_resources.py` and `api/` need the packages grpcio and protobuf (the
extra `kubernetes`), and only they speak to a kubelet. The rest decides, and is pure.
"""
