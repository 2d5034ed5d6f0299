; Calls of one function with different arguments, shared among threads (calls.py).

%shared_calls = type {
  ptr,        ; entry: void (ptr, i64, i64), one of the functions of this file
  ptr,        ; thread_number: i32 (), omp_get_thread_num, or null
  ptr,        ; team_size: i32 (), omp_get_num_threads, or null
  ptr,        ; function: void (i64), to be called
  i64,        ; count: how many calls there are
  i64,        ; arrived: threads that have come to run the calls at the same time
  ptr,        ; yield: i32 (), lets another thread run
  [0 x i64]   ; arguments: one for each call
}

; Reads of the number of arrived threads before a thread yields between two of them.
@arrival_spins = private unnamed_addr constant i64 5000
; Reads after which the first thread gives up.
@arrival_limit = private unnamed_addr constant i64 20000

; Runs every `threads`-th call, from call `me` on.
define void @run_shared_calls(ptr %calls, i64 %me, i64 %threads) {
entry:
  %function_field = getelementptr %shared_calls, ptr %calls, i64 0, i32 3
  %count_field = getelementptr %shared_calls, ptr %calls, i64 0, i32 4
  %function = load ptr, ptr %function_field, align 8
  %count = load i64, ptr %count_field, align 8
  br label %loop

loop:
  %index = phi i64 [ %me, %entry ], [ %next, %run ]
  %is_left = icmp slt i64 %index, %count
  br i1 %is_left, label %run, label %end

run:
  %argument_field = getelementptr %shared_calls, ptr %calls, i64 0, i32 7, i64 %index
  %argument = load i64, ptr %argument_field, align 8
  call void %function(i64 %argument)
  %next = add i64 %index, %threads
  br label %loop

end:
  ret void
}

; The same for calls that wait for each other, where threads may come late or not at all: no call begins before all
; threads have arrived. The first thread gives up after a while; a thread that comes later reads a negative number.
define void @run_shared_calls_concurrently(ptr %calls, i64 %me, i64 %threads) {
entry:
  %arrived_field = getelementptr %shared_calls, ptr %calls, i64 0, i32 5
  %yield_field = getelementptr %shared_calls, ptr %calls, i64 0, i32 6
  %yield = load ptr, ptr %yield_field, align 8
  %is_first = icmp eq i64 %me, 0
  %before = atomicrmw add ptr %arrived_field, i64 1 acq_rel, align 8
  br label %spin

spin:
  %spins = phi i64 [ 0, %entry ], [ %next_spins, %again ]
  %arrived = load atomic i64, ptr %arrived_field acquire, align 8
  %is_given_up = icmp slt i64 %arrived, 0
  br i1 %is_given_up, label %end, label %check

check:
  %is_complete = icmp sge i64 %arrived, %threads
  br i1 %is_complete, label %run, label %wait

wait:
  %next_spins = add i64 %spins, 1
  %limit = load i64, ptr @arrival_limit, align 8
  %is_over = icmp sgt i64 %next_spins, %limit
  %gives_up = and i1 %is_over, %is_first
  br i1 %gives_up, label %give_up, label %consider

consider:
  %spin_limit = load i64, ptr @arrival_spins, align 8
  %is_long = icmp sgt i64 %next_spins, %spin_limit
  br i1 %is_long, label %block, label %again

block:
  %ignored = call i32 %yield()
  br label %again

again:
  br label %spin

give_up:
  %change = cmpxchg ptr %arrived_field, i64 %arrived, i64 -4294967296 acq_rel acquire, align 8
  %is_changed = extractvalue { i64, i1 } %change, 1
  br i1 %is_changed, label %end, label %again

run:
  call void @run_shared_calls(ptr %calls, i64 %me, i64 %threads)
  br label %end

end:
  ret void
}
