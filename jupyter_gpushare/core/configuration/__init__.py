"""Settings as people write them: values in texts, and layers of which the last one counts. Pure."""
