"""The sections of a release's report, each a function from the release to a piece of the page."""
