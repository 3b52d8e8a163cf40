"""Files that people have, read into our nouns: one module a format, each with ``sniff`` and ``read``."""
