"""What repeats are worth, and where something else pays."""
