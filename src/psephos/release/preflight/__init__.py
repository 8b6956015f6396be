"""All that is known, decided or refused before anything is charged."""
