; Loops over time in pieces of steps. An idle thread takes half of the remaining rows of a busy one (work_stealing.py).
;
; A loop that is split ends, and its two halves begin where it stopped. Halves follow the loop they are halves of, and
; have no pieces left until it is split: a thread that reads all states in that order and finds no pieces is done.

%stealable_loop = type {
  i64,        ; state: twice the number of pieces left, plus 1 while a thread runs the loop
  i64,        ; pieces: how many the loop has in all
  ptr,        ; frame: the argument of the function
  ptr,        ; steps: for each piece the first step and the step after the last
  i64,        ; half: the number of the first of its two halves, or 0
  [3 x i64]   ; unused: a loop fills a cache line
}

%work_stealing = type {
  ptr,                  ; entry: void (ptr, i64, i64), run_stealable_loops
  ptr,                  ; thread_number: see shared_calls.ll
  ptr,                  ; team_size
  ptr,                  ; function: void (ptr), runs one piece
  i64,                  ; slot: the field of a frame for the first step; that for the last follows
  i64,                  ; count: of loops
  ptr,                  ; yield: i32 (), lets another thread run
  i64,                  ; idle: threads that wait for a half
  i64,                  ; owned: loops that exist from the beginning, one for each thread
  [7 x i64],            ; unused: the loops begin a cache line
  [0 x %stealable_loop] ; loops
}

; Scans of all loops before an idle thread yields: ten microseconds or more.
@stealing_spins = private unnamed_addr constant i64 5000

define void @run_stealable_loops(ptr %list, i64 %me, i64 %threads) {
entry:
  %has_pieces = alloca i64, align 8
  %count_field = getelementptr %work_stealing, ptr %list, i64 0, i32 5
  %yield_field = getelementptr %work_stealing, ptr %list, i64 0, i32 6
  %idle_field = getelementptr %work_stealing, ptr %list, i64 0, i32 7
  %owned_field = getelementptr %work_stealing, ptr %list, i64 0, i32 8
  %loops = getelementptr %work_stealing, ptr %list, i64 0, i32 10
  %count = load i64, ptr %count_field, align 8
  %yield = load ptr, ptr %yield_field, align 8
  %owned = load i64, ptr %owned_field, align 8
  %own = getelementptr %stealable_loop, ptr %loops, i64 %me
  %has_own = icmp slt i64 %me, %owned
  br i1 %has_own, label %begin, label %scan

begin:
  ; The rows of a thread are the same from run to run: they may still be in its cache.
  %is_own = call i1 @claim_loop(ptr %own)
  br i1 %is_own, label %run, label %scan

scan:
  %is_idle = phi i1 [ false, %entry ], [ false, %begin ], [ %is_idle, %try ], [ false, %run ], [ true, %again ]
  %spins = phi i64 [ 0, %entry ], [ 0, %begin ], [ %spins, %try ], [ 0, %run ], [ %next_spins, %again ]
  %longest = call ptr @longest_loop(ptr %loops, i64 %count, ptr %has_pieces)
  %is_none = icmp eq ptr %longest, null
  br i1 %is_none, label %check, label %try

try:
  %is_claimed = call i1 @claim_loop(ptr %longest)
  br i1 %is_claimed, label %claimed, label %scan

claimed:
  br i1 %is_idle, label %resume, label %run

resume:
  %idle_before = atomicrmw sub ptr %idle_field, i64 1 monotonic, align 8
  br label %run

run:
  %loop = phi ptr [ %own, %begin ], [ %longest, %claimed ], [ %longest, %resume ]
  call void @run_pieces(ptr %list, ptr %loop)
  br label %scan

check:
  %left = load i64, ptr %has_pieces, align 8
  %is_over = icmp eq i64 %left, 0
  br i1 %is_over, label %end, label %wait

wait:
  br i1 %is_idle, label %pause, label %ask

ask:
  %idle_others = atomicrmw add ptr %idle_field, i64 1 monotonic, align 8
  br label %pause

pause:
  %next_spins = add i64 %spins, 1
  %spin_limit = load i64, ptr @stealing_spins, align 8
  %is_long = icmp sgt i64 %next_spins, %spin_limit
  br i1 %is_long, label %block, label %again

block:
  %ignored = call i32 %yield()
  br label %again

again:
  br label %scan

end:
  ret void
}

; The loop that no thread runs and that has the most pieces left, or null; writes the bits of all states to %has_pieces.
define internal ptr @longest_loop(ptr %loops, i64 %count, ptr %has_pieces) {
entry:
  br label %scan

scan:
  %index = phi i64 [ 0, %entry ], [ %next, %scan ]
  %best = phi ptr [ null, %entry ], [ %next_best, %scan ]
  %most = phi i64 [ 0, %entry ], [ %next_most, %scan ]
  %states = phi i64 [ 0, %entry ], [ %next_states, %scan ]
  %loop = getelementptr %stealable_loop, ptr %loops, i64 %index
  %state = load atomic i64, ptr %loop acquire, align 8
  %next_states = or i64 %states, %state
  %is_running = trunc i64 %state to i1
  %is_free = xor i1 %is_running, true
  %is_longer = icmp sgt i64 %state, %most
  %is_better = and i1 %is_free, %is_longer
  %next_best = select i1 %is_better, ptr %loop, ptr %best
  %next_most = select i1 %is_better, i64 %state, i64 %most
  %next = add i64 %index, 1
  %is_left = icmp slt i64 %next, %count
  br i1 %is_left, label %scan, label %end

end:
  store i64 %next_states, ptr %has_pieces, align 8
  ret ptr %next_best
}

; Whether this thread may run a loop: another may have claimed it before.
define internal i1 @claim_loop(ptr %loop) {
entry:
  %state = load atomic i64, ptr %loop monotonic, align 8
  %is_running = trunc i64 %state to i1
  %is_over = icmp eq i64 %state, 0
  %is_lost = or i1 %is_running, %is_over
  br i1 %is_lost, label %end, label %try

try:
  %running = add i64 %state, 1
  %change = cmpxchg ptr %loop, i64 %state, i64 %running acquire monotonic, align 8
  %is_claimed = extractvalue { i64, i1 } %change, 1
  ret i1 %is_claimed

end:
  ret i1 false
}

; Runs piece after piece until none is left, or until another thread waits for a half.
define internal void @run_pieces(ptr %list, ptr %loop) {
entry:
  %function_field = getelementptr %work_stealing, ptr %list, i64 0, i32 3
  %slot_field = getelementptr %work_stealing, ptr %list, i64 0, i32 4
  %idle_field = getelementptr %work_stealing, ptr %list, i64 0, i32 7
  %loops = getelementptr %work_stealing, ptr %list, i64 0, i32 10
  %pieces_field = getelementptr %stealable_loop, ptr %loop, i64 0, i32 1
  %frame_field = getelementptr %stealable_loop, ptr %loop, i64 0, i32 2
  %steps_field = getelementptr %stealable_loop, ptr %loop, i64 0, i32 3
  %half_field = getelementptr %stealable_loop, ptr %loop, i64 0, i32 4
  %function = load ptr, ptr %function_field, align 8
  %slot = load i64, ptr %slot_field, align 8
  %pieces = load i64, ptr %pieces_field, align 8
  %frame = load ptr, ptr %frame_field, align 8
  %steps = load ptr, ptr %steps_field, align 8
  %half = load i64, ptr %half_field, align 8
  %frame_first = getelementptr i64, ptr %frame, i64 %slot
  %frame_last = getelementptr i64, ptr %frame_first, i64 1
  %lower = getelementptr %stealable_loop, ptr %loops, i64 %half
  %upper = getelementptr %stealable_loop, ptr %lower, i64 1
  %has_no_halves = icmp eq i64 %half, 0
  %begun = load atomic i64, ptr %loop monotonic, align 8
  br label %piece

piece:
  %state = phi i64 [ %begun, %entry ], [ %next_state, %go_on ]
  %left = lshr i64 %state, 1
  %done = sub i64 %pieces, %left
  %pair = mul i64 %done, 2
  %first_field = getelementptr i64, ptr %steps, i64 %pair
  %last_field = getelementptr i64, ptr %first_field, i64 1
  %first = load i64, ptr %first_field, align 8
  %last = load i64, ptr %last_field, align 8
  store i64 %first, ptr %frame_first, align 8
  store i64 %last, ptr %frame_last, align 8
  call void %function(ptr %frame)
  %next_state = sub i64 %state, 2
  %is_over = icmp slt i64 %next_state, 2
  br i1 %is_over, label %end, label %check

check:
  %idle = load atomic i64, ptr %idle_field monotonic, align 8
  %is_none_idle = icmp slt i64 %idle, 1
  %stays_whole = or i1 %is_none_idle, %has_no_halves
  br i1 %stays_whole, label %go_on, label %split

go_on:
  store atomic i64 %next_state, ptr %loop monotonic, align 8
  br label %piece

split:
  %free = sub i64 %next_state, 1
  store atomic i64 %free, ptr %lower release, align 8
  store atomic i64 %free, ptr %upper release, align 8
  br label %end

end:
  store atomic i64 0, ptr %loop release, align 8
  ret void
}
