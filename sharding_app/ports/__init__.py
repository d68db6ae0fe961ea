"""The doors: Protocols for everything outside the runtime. The adapters implement them."""
