"""The owner's room: it sees data and shows them to their owner alone, and never spends budget."""
