"""The kinds of packages."""
