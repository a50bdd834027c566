"""An explicit-state model check of the protocol: the real decision, two instances, and everything that goes wrong."""
