"""What generated kernels call, as source text: the meeting of blocks, and how two shares of a reduction become one.

A meeting is a counter that only grows: each block adds one when it has written what others need (`release`: its writes
come first), and goes on when all have (`acquire`: its reads come after). A single block only waits for its own threads.
"""

FUNCTIONS = '''
@triton.jit
def arrive(counter, BLOCKS: tl.constexpr):
    """Tell the others that this block has written what it had to."""
    tl.debug_barrier()
    if BLOCKS > 1:
        tl.inline_asm_elementwise(
            "{ .reg .pred first; .reg .u32 thread; mov.u32 thread, %tid.x; setp.eq.u32 first, thread, 0;"
            " @first red.release.gpu.global.add.u32 [$1], 1; mov.u32 $0, 0; }",
            "=r,l", [counter], dtype=tl.int32, is_pure=False, pack=1,
        )


@triton.jit
def meet(counter, target, BLOCKS: tl.constexpr):
    """Wait until all blocks have arrived: the counter has reached `target`, modulo 2**32."""
    if BLOCKS > 1:
        tl.inline_asm_elementwise(
            "{ .reg .pred early; .reg .s32 left; AGAIN: ld.acquire.gpu.global.s32 left, [$1];"
            " sub.s32 left, left, $2; setp.lt.s32 early, left, 0; @early bra AGAIN; mov.s32 $0, left; }",
            "=r,l,r", [counter, target], dtype=tl.int32, is_pure=False, pack=1,
        )


@triton.jit
def larger(one, other):
    """The larger of two, or NaN."""
    return tl.maximum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(one, other):
    """The smaller of two, or NaN."""
    return tl.minimum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def plus(one, other):
    """The sum of two, whichever comes first.

    Threads that reduce a row together add in different orders, and all of them have the sum. The compiler must not fuse
    a product into it, such as the square of one's own number: sums would differ in the last bit from thread to thread.
    """
    return libdevice.add_rn(one, other)


@triton.jit
def times(one, other):
    """The product of two."""
    return one * other
'''
