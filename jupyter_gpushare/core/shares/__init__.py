"""What an admin says of users and groups: who gets how much, and who is served when. Pure."""
