"""PRIVACY-CRITICAL: everything that sees data or budget."""
