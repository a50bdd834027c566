"""The bounded models: small ones for every test run, big ones for whoever has the time."""

from .world import Budget, Config

SMALL = {
    "late and lost messages": Config(budget=Budget(delays=1)),
    "late and lost messages, alone": Config(overlaps=("skip",), strays=0, max_attempts=1, budget=Budget(delays=2)),
    "copies, late messages, crash, restart": Config(
        prompt=True, budget=Budget(delays=1, duplicates=1, crashes=1, restarts=1)
    ),
    "crash and restart": Config(budget=Budget(crashes=1, restarts=1)),
    "freeze": Config(budget=Budget(freezes=1)),
    "stop": Config(max_attempts=1, budget=Budget(stops=1)),
    "stop, lost messages": Config(strays=0, patient=True, prompt=True, budget=Budget(delays=1, stops=1)),
    "stop, copies, late messages": Config(
        max_attempts=1, prompt=True, budget=Budget(delays=1, duplicates=1, stops=1, restarts=1)
    ),
    "two slots": Config(slots=2, prompt=True),
    "two slots, one attempt, late messages": Config(slots=2, prompt=True, max_attempts=1, budget=Budget(delays=1)),
    "two slots, allow": Config(slots=2, prompt=True, max_attempts=1, overlaps=("allow", "allow")),
    "two slots, skip beside allow": Config(slots=2, prompt=True, max_attempts=1, overlaps=("skip", "allow")),
    "two slots, alone, allow, crash and restart": Config(
        slots=2, prompt=True, overlaps=("allow",), budget=Budget(crashes=1, restarts=1)
    ),
}

BIG = {
    "three late messages": Config(budget=Budget(delays=3)),
    "late messages, crash, restart": Config(budget=Budget(delays=1, crashes=1, restarts=1)),
    "two copies, late messages": Config(budget=Budget(delays=1, duplicates=2), strays=2),
    "freeze, late messages, crash": Config(budget=Budget(delays=1, freezes=1, crashes=1)),
    "two freezes": Config(budget=Budget(freezes=2)),
    "stop, late messages, restart": Config(budget=Budget(delays=1, stops=1, restarts=1)),
    "two slots, crash and restart": Config(slots=2, prompt=True, budget=Budget(crashes=1, restarts=1)),
    "two slots, late messages": Config(slots=2, prompt=True, budget=Budget(delays=1)),
    "two slots, freeze": Config(slots=2, prompt=True, budget=Budget(freezes=1)),
    "two slots, allow, two attempts": Config(slots=2, prompt=True, overlaps=("allow", "allow")),
    "two slots, skip beside allow, copies": Config(
        slots=2, prompt=True, max_attempts=1, overlaps=("skip", "allow"), budget=Budget(duplicates=1)
    ),
}
