"""An app whose projection sums up the accounts of the sagas."""
