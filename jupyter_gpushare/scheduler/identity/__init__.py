"""Identities: processes, tokens, and the tenants that they belong to."""
