"""``tenure demo``: three processes share a schedule, and what happens when one is killed, frozen or stopped."""
