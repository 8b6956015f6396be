"""The numbers of a release: views, labels, layouts of tables."""
