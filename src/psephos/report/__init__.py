"""How numbers look to people: HTML tables, charts, the page of a release."""
