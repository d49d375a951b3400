"""`jupyter gpushare …`: one module a verb."""
