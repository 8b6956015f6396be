"""The commands: a thin skin over the main job."""
