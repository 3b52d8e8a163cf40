"""The nouns: what Meshwright speaks about. Frozen pydantic models at the borders, slotted arrays inside."""
