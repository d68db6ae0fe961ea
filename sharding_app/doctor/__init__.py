"""What `sharding_doctor` examines: `gather` looks once at everything, each examination judges the look, without I/O.

Contract: nothing is changed by looking, every look has a bound in rows and in time, and no content of an event or of a
state ever gets into a finding.
"""
