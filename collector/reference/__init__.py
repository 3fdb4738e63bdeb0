"""References for comparison, with provenance: measured by the same agent, imported from official results, or published elsewhere."""
