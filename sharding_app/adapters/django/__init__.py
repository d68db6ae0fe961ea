"""Django's database connections and transactions, as the cluster uses them."""
