"""The main job: from a release file to a bundle that anyone can verify."""
