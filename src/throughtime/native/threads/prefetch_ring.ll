; A ring buffer between the thread that computes blocks ahead of a loop (the producer) and the thread that runs the loop
; (the consumer). It is embedded in kernels (backends/cpu/codegen/kernel.py), which define the two functions declared
; here. A block that the producer has not claimed when the consumer needs it is computed by the consumer.

%prefetch_ring = type {
  i64,        ; claimed: blocks that one of the threads has begun
  i64,        ; consumed: blocks that the loop is done with
  i64,        ; packing: 0 not begun, 1 the matrices of blocks are being packed, 2 packed
  ptr,        ; loop_matrices: jobs that pack what the loop multiplies with
  ptr,        ; block_matrices: jobs that pack what blocks are multiplied with
  ptr,        ; yield: i32 (), lets another thread run
  [2 x i64],  ; unused: the next field begins a cache line
  [4 x i64]   ; ready: for each slot the block in it, counted from 1
}

; Blocks that are computed and not yet consumed, at most: a power of two, the length of `ready`.
@ring_slots = private unnamed_addr constant i64 4
; Reads before a waiting thread yields: about as long as a block takes.
@ring_spins = private unnamed_addr constant i64 2000

declare void @pack_all(ptr)
declare void @prepare(ptr, i64)

; Called between two reads of a field that another thread will change.
define internal void @ring_pause(ptr %ring, i64 %spins) {
entry:
  %spin_limit = load i64, ptr @ring_spins, align 8
  %is_long = icmp sgt i64 %spins, %spin_limit
  br i1 %is_long, label %block, label %end

block:
  %yield_field = getelementptr %prefetch_ring, ptr %ring, i64 0, i32 5
  %yield = load ptr, ptr %yield_field, align 8
  %ignored = call i32 %yield()
  br label %end

end:
  ret void
}

; Waits until a field has a value.
define internal void @ring_await(ptr %ring, ptr %field, i64 %value) {
entry:
  br label %spin

spin:
  %spins = phi i64 [ 0, %entry ], [ %next_spins, %again ]
  %found = load atomic i64, ptr %field acquire, align 8
  %is_there = icmp eq i64 %found, %value
  br i1 %is_there, label %end, label %again

again:
  call void @ring_pause(ptr %ring, i64 %spins)
  %next_spins = add i64 %spins, 1
  br label %spin

end:
  ret void
}

; Whether the consumer has to compute a block itself. If the producer has begun it, waits until it is ready. Without a
; ring the consumer computes every block.
define internal i1 @ring_claim(ptr %ring, i64 %block) {
entry:
  %has_no_ring = icmp eq ptr %ring, null
  br i1 %has_no_ring, label %end, label %claim

claim:
  %next_block = add i64 %block, 1
  %change = cmpxchg ptr %ring, i64 %block, i64 %next_block monotonic monotonic, align 8
  %is_claimed = extractvalue { i64, i1 } %change, 1
  %slots = load i64, ptr @ring_slots, align 8
  %mask = sub i64 %slots, 1
  %slot = and i64 %block, %mask
  %ready = getelementptr %prefetch_ring, ptr %ring, i64 0, i32 7, i64 %slot
  br i1 %is_claimed, label %end, label %wait

wait:
  call void @ring_await(ptr %ring, ptr %ready, i64 %next_block)
  br label %end

end:
  %computes = phi i1 [ true, %entry ], [ true, %claim ], [ false, %wait ]
  ret i1 %computes
}

; The next block for the producer, once a slot is free; -1 if no block is left.
define internal i64 @ring_next_block(ptr %ring, i64 %blocks) {
entry:
  %consumed_field = getelementptr %prefetch_ring, ptr %ring, i64 0, i32 1
  br label %spin

spin:
  %spins = phi i64 [ 0, %entry ], [ %next_spins, %again ], [ 0, %claim ]
  %block = load atomic i64, ptr %ring monotonic, align 8
  %is_left = icmp slt i64 %block, %blocks
  br i1 %is_left, label %consider, label %end

consider:
  %consumed = load atomic i64, ptr %consumed_field acquire, align 8
  %ahead = sub i64 %block, %consumed
  %slots = load i64, ptr @ring_slots, align 8
  %has_slot = icmp slt i64 %ahead, %slots
  br i1 %has_slot, label %claim, label %again

again:
  call void @ring_pause(ptr %ring, i64 %spins)
  %next_spins = add i64 %spins, 1
  br label %spin

claim:
  %next_block = add i64 %block, 1
  %change = cmpxchg ptr %ring, i64 %block, i64 %next_block monotonic monotonic, align 8
  %is_claimed = extractvalue { i64, i1 } %change, 1
  br i1 %is_claimed, label %end, label %spin

end:
  %result = phi i64 [ -1, %spin ], [ %block, %claim ]
  ret i64 %result
}

; A block is ready for the consumer.
define internal void @ring_publish(ptr %ring, i64 %block) {
  %slots = load i64, ptr @ring_slots, align 8
  %mask = sub i64 %slots, 1
  %slot = and i64 %block, %mask
  %ready = getelementptr %prefetch_ring, ptr %ring, i64 0, i32 7, i64 %slot
  %next_block = add i64 %block, 1
  store atomic i64 %next_block, ptr %ready release, align 8
  ret void
}

; The consumer is done with a block, and its slot is free.
define internal void @ring_release(ptr %ring, i64 %block) {
  %consumed_field = getelementptr %prefetch_ring, ptr %ring, i64 0, i32 1
  %next_block = add i64 %block, 1
  store atomic i64 %next_block, ptr %consumed_field release, align 8
  ret void
}

; Packs the matrices of the loop.
define internal void @ring_pack_loop_matrices(ptr %ring) {
  %matrices_field = getelementptr %prefetch_ring, ptr %ring, i64 0, i32 3
  %matrices = load ptr, ptr %matrices_field, align 8
  call void @pack_all(ptr %matrices)
  ret void
}

; Packs the matrices of blocks and computes the first block, while they are in the cache of this processor; if the other
; thread has begun to, waits until they are packed.
define internal void @ring_begin(ptr %frame, ptr %ring) {
entry:
  %packing_field = getelementptr %prefetch_ring, ptr %ring, i64 0, i32 2
  %change = cmpxchg ptr %packing_field, i64 0, i64 1 monotonic monotonic, align 8
  %is_claimed = extractvalue { i64, i1 } %change, 1
  br i1 %is_claimed, label %work, label %wait

wait:
  call void @ring_await(ptr %ring, ptr %packing_field, i64 2)
  br label %end

work:
  %matrices_field = getelementptr %prefetch_ring, ptr %ring, i64 0, i32 4
  %matrices = load ptr, ptr %matrices_field, align 8
  call void @pack_all(ptr %matrices)
  store atomic i64 2, ptr %packing_field release, align 8
  call void @prepare(ptr %frame, i64 0)
  call void @ring_publish(ptr %ring, i64 0)
  br label %end

end:
  ret void
}

; The producer: computes blocks until none is left.
define internal void @ring_produce(ptr %frame, ptr %ring, i64 %blocks) {
entry:
  call void @ring_begin(ptr %frame, ptr %ring)
  br label %next

next:
  %block = call i64 @ring_next_block(ptr %ring, i64 %blocks)
  %is_over = icmp slt i64 %block, 0
  br i1 %is_over, label %end, label %work

work:
  call void @prepare(ptr %frame, i64 %block)
  call void @ring_publish(ptr %ring, i64 %block)
  br label %next

end:
  ret void
}
