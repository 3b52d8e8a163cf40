"""The command line: shows and asks. No arithmetic here; every number comes from a verb."""
