"""What the scheduler of a node tells the view of all nodes: the messages of both sides. Pure."""
