"""Processes: clients of the store that live in processes of their own, with clocks of their own, and can be killed."""
