"""Messages of the kubelet's interfaces, generated from the .proto files here (generate.py)."""
