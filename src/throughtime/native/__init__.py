"""Native functions written by hand, the LLVM toolchain they share with generated kernels, and threads."""
