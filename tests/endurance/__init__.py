"""Instances that run for long on a real store: they and the store are measured, and must not grow."""
