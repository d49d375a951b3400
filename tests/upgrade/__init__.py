"""Versions meet: hooks and command lines of an earlier version under this scheduler, and the other
way round."""
