"""http.sock: the HTTP API, who calls, and the stream of events."""
