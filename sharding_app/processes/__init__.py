"""Child processes of this machine, the addresses of their servers, and a proxy in between."""
