"""An auction house: auctions that close by themselves, and credit that is held for bids."""
