"""Two sagas: money that moves between accounts, and orders that book, pay and ship."""
