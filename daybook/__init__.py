"""What users import and type."""
