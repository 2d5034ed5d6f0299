"""From a kernel plan to LLVM IR."""
