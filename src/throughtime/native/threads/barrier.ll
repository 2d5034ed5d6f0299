; A spin barrier for the threads of one shard. It is embedded in cooperative kernels (backends/cpu/codegen/kernel.py).
;
; A thread that is late several times is dropped: from then on the barrier expects the first thread only.
; The Python half (barrier.py) reads the names of fields and constants from this file.

%barrier = type {
  i64,        ; arrived: threads that reached the barrier in this generation
  ptr,        ; yield: i32 (), lets another thread run
  ptr,        ; clock: i32 (i32, ptr), clock_gettime
  i64,        ; clock_id: the number of the monotonic clock
  i64,        ; late_after: nanoseconds after which a missing thread is late
  i64,        ; late_now: 1 if a thread is late in this generation
  i64,        ; late_count: generations in which a thread was late
  i64,        ; unused: the next field begins a cache line, which waiting threads only read
  i64,        ; generation: how often all threads have arrived
  i64         ; members: threads that are expected
}

; Reads of the generation before a waiting thread yields: about ten microseconds.
@barrier_spins = private unnamed_addr constant i64 20000
; Late generations after which the barrier expects the first thread only.
@barrier_late_limit = private unnamed_addr constant i64 4

define internal void @barrier_wait(ptr %barrier) {
entry:
  %generation_field = getelementptr %barrier, ptr %barrier, i64 0, i32 8
  %members_field = getelementptr %barrier, ptr %barrier, i64 0, i32 9
  %members = load atomic i64, ptr %members_field monotonic, align 8
  %generation = load atomic i64, ptr %generation_field monotonic, align 8
  %before = atomicrmw add ptr %barrier, i64 1 acq_rel, align 8
  %arrived = add i64 %before, 1
  %is_last = icmp eq i64 %arrived, %members
  br i1 %is_last, label %release, label %spin

release:
  %late_now_field = getelementptr %barrier, ptr %barrier, i64 0, i32 5
  %late_count_field = getelementptr %barrier, ptr %barrier, i64 0, i32 6
  %late_now = load atomic i64, ptr %late_now_field monotonic, align 8
  store atomic i64 0, ptr %late_now_field monotonic, align 8
  %earlier = load atomic i64, ptr %late_count_field monotonic, align 8
  %late_count = add i64 %earlier, %late_now
  store atomic i64 %late_count, ptr %late_count_field monotonic, align 8
  %late_limit = load i64, ptr @barrier_late_limit, align 8
  %drops_others = icmp sge i64 %late_count, %late_limit
  %expected = select i1 %drops_others, i64 1, i64 %members
  store atomic i64 %expected, ptr %members_field monotonic, align 8
  store atomic i64 0, ptr %barrier monotonic, align 8
  %next_generation = add i64 %generation, 1
  store atomic i64 %next_generation, ptr %generation_field release, align 8
  ret void

spin:
  %spins = phi i64 [ 0, %entry ], [ %next_spins, %again ]
  %now = load atomic i64, ptr %generation_field acquire, align 8
  %is_released = icmp ne i64 %now, %generation
  br i1 %is_released, label %end, label %again

again:
  %next_spins = add i64 %spins, 1
  %spin_limit = load i64, ptr @barrier_spins, align 8
  %is_long = icmp sge i64 %next_spins, %spin_limit
  br i1 %is_long, label %block, label %spin

block:
  call void @barrier_wait_yielding(ptr %barrier, i64 %generation)
  br label %end

end:
  ret void
}

; The slow path: yield between two reads, and note when a thread is late.
define internal void @barrier_wait_yielding(ptr %barrier, i64 %generation) noinline {
entry:
  %generation_field = getelementptr %barrier, ptr %barrier, i64 0, i32 8
  %yield_field = getelementptr %barrier, ptr %barrier, i64 0, i32 1
  %late_after_field = getelementptr %barrier, ptr %barrier, i64 0, i32 4
  %late_now_field = getelementptr %barrier, ptr %barrier, i64 0, i32 5
  %yield = load ptr, ptr %yield_field, align 8
  %late_after = load i64, ptr %late_after_field, align 8
  %begun = call i64 @barrier_nanoseconds(ptr %barrier)
  br label %spin

spin:
  %ignored = call i32 %yield()
  %now = load atomic i64, ptr %generation_field acquire, align 8
  %is_released = icmp ne i64 %now, %generation
  br i1 %is_released, label %end, label %again

again:
  %time = call i64 @barrier_nanoseconds(ptr %barrier)
  %waited = sub i64 %time, %begun
  %is_late = icmp sgt i64 %waited, %late_after
  br i1 %is_late, label %late, label %spin

late:
  store atomic i64 1, ptr %late_now_field monotonic, align 8
  br label %spin

end:
  ret void
}

define internal i64 @barrier_nanoseconds(ptr %barrier) {
  %timespec = alloca [2 x i64], align 8
  %clock_field = getelementptr %barrier, ptr %barrier, i64 0, i32 2
  %clock_id_field = getelementptr %barrier, ptr %barrier, i64 0, i32 3
  %clock = load ptr, ptr %clock_field, align 8
  %clock_id = load i64, ptr %clock_id_field, align 8
  %clock_number = trunc i64 %clock_id to i32
  %ignored = call i32 %clock(i32 %clock_number, ptr %timespec)
  %seconds = load i64, ptr %timespec, align 8
  %rest_field = getelementptr [2 x i64], ptr %timespec, i64 0, i64 1
  %rest = load i64, ptr %rest_field, align 8
  %scaled = mul i64 %seconds, 1000000000
  %total = add i64 %scaled, %rest
  ret i64 %total
}
