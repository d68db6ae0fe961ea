"""Workers whose lives are watched on real nodes."""
