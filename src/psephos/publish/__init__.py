"""The main job: from a table and a list of questions to a published, verifiable release."""
