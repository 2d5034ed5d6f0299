; Reaches a barrier many times, to measure it (barrier.py). It ends early if threads were dropped.

declare void @barrier_wait(ptr)

%barrier_benchmark = type {
  ptr,        ; barrier: a %barrier
  i64         ; count: how often to reach it
}

define void @reach_barrier_often(ptr %benchmark) {
entry:
  %count_field = getelementptr %barrier_benchmark, ptr %benchmark, i64 0, i32 1
  %barrier = load ptr, ptr %benchmark, align 8
  %count = load i64, ptr %count_field, align 8
  %members_field = getelementptr i64, ptr %barrier, i64 9  ; members of %barrier
  br label %loop

loop:
  %index = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @barrier_wait(ptr %barrier)
  %members = load atomic i64, ptr %members_field monotonic, align 8
  %next = add i64 %index, 1
  %has_others = icmp sgt i64 %members, 1
  %is_left = icmp slt i64 %next, %count
  %goes_on = and i1 %has_others, %is_left
  br i1 %goes_on, label %loop, label %end

end:
  ret void
}
