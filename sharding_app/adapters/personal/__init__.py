"""Personal data is sealed on its way into the database, and opened on its way back."""
