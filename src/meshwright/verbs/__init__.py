"""The verbs: one typed function each. The command line, notebooks and tests call the same ones."""
