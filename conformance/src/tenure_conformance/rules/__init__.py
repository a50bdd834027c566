"""The rules, one module per area; a new module here is found by itself."""
