"""`make demo-cluster`: users share the devices of two Slurm nodes while you watch."""
