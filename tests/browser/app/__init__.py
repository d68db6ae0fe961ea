"""What the browser's cluster hosts beside the demo's carts."""
