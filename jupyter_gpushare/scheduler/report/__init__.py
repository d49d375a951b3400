"""Tells the view of all nodes what this scheduler knows."""
