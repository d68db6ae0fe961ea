"""The doors: what the runtime asks of the outside, as Protocols. Adapters implement them, the simulation too."""
