"""Who somebody is: processes, tokens, and the tenants that they belong to."""
