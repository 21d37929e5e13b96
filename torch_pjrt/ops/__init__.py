"""What an ATen operator is: schema facts, dtypes, the lowering table. No arrays are touched here."""
