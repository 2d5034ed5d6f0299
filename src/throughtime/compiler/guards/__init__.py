"""What a compiled program assumes of its cell, and how a call checks that."""
