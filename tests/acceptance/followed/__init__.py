"""An app whose projection follows the purses of two journals, and writes nothing."""
