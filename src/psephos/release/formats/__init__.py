"""The files of a bundle for other programs: one module a format, listed in `registry`."""
