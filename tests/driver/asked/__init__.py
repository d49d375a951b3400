"""Questions to a driver that its documentation leaves open, one module a subject.

Each is a function that asks in a process of its own (tests/driver/questions.py), and returns what
it saw. It asserts nothing about the answer."""
