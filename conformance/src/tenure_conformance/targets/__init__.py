"""The targets that come with the suite, a module each: its name is the target's, with `_` for `-`."""
