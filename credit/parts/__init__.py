"""What stages are made of: parts that several share, and the long ones of a single stage."""
