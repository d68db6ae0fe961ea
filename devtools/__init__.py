"""Work on the app and its demo needs this, and no user of the app does: servers out of wheels."""
