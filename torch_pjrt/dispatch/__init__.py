"""From a torch operator call to work: finding the row, recording a step, running, reading back, falling back."""
