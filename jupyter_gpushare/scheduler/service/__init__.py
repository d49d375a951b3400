"""What can be asked of the scheduler, and what is told of it."""
