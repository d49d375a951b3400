"""hook.sock: connections of processes that have the hook, and what they say as events."""
