"""Runs the suite again and again, in random order of files and in three kinds of company, and tells
what is not sure."""
