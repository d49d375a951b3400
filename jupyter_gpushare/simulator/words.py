"""The policies in words, for the help. Nothing is imported for them."""

from __future__ import annotations

WORDS = {
    "ours": "the scheduler of this package, as it runs in production",
    "nvshare": "first come, a quantum of 30 s, idle after 5 s, memory by page faults",
    "gemini": "a token of 250 ms",
    "reservation": "one notebook per GPU, until it is closed or idle for an hour",
    "timeslicing": "plain driver sharing",
}
