"""Who is served when: lines, siblings, and which work is new."""
