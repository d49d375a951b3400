"""The Jupyter server's side: finds or starts the scheduler, and tells the browser what it says."""
