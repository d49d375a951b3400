"""What `jupyter gpushare doctor` looks at: facts are gathered here, judged in findings.py."""
