"""What those who follow the scheduler are shown of it, besides snapshots."""
