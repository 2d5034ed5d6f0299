"""From LLVM IR to functions in memory, with a cache on disk."""
