"""A distributed scheduler: each run happens once, a crashed run is taken over, a stale owner can do nothing."""
