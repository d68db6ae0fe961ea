"""An app whose projection sums up the accounts of a mixed run, and the judge of its table."""
