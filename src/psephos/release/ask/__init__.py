"""Further questions to a bundle, free of charge."""
