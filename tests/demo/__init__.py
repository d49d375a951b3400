"""`make demo`: two notebooks share one GPU while you watch."""
