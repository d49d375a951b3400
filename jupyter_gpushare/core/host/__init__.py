"""What the memory of the host lets be done."""
