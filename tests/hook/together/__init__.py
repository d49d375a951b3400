"""Where two parts of the hook's memory meet that were made and tested apart."""
