"""What is kept on disk and in memory: the identity of what numbers depend on, cells with checksums, programs compiled once."""
