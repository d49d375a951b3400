"""What the Tab key offers after `%gpushare`. Pure: no scheduler is asked while somebody types."""

VERBS = ("queue", "release", "hold", "class", "evict", "doctor")
AFTER = {
    "hold": ("0", "30s", "5m", "10m", "30m", "1h"),
    "class": ("batch", "interactive", "realtime"),
}
"""What may follow a sub-command."""


def completions(line: str) -> "list[str]":
    """`line` is the line up to the cursor, the magic's name included."""
    words = line.split()[1:]
    if line[-1:].isspace() or not words:
        words.append("")
    *before, begun = words
    offered = VERBS if not before else AFTER.get(before[0], ()) if len(before) == 1 else ()
    return [word for word in offered if word.startswith(begun)]
