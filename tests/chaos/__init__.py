"""Real instances, a real store, and a seeded schedule of faults; then a judgement of all that was written down."""
