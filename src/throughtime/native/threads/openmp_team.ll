; What each thread of an OpenMP team calls (team.py). OpenMP passes one pointer: the calls (shared_calls.ll), which have
; the functions that return the number of the thread and the size of the team.

%team_calls = type {
  ptr,        ; entry: void (ptr, i64, i64)
  ptr,        ; thread_number: i32 ()
  ptr,        ; team_size: i32 ()
  ptr,        ; function
  i64         ; count: how many calls there are
}

define void @run_in_team(ptr %calls) {
  %thread_number_field = getelementptr %team_calls, ptr %calls, i64 0, i32 1
  %team_size_field = getelementptr %team_calls, ptr %calls, i64 0, i32 2
  %entry = load ptr, ptr %calls, align 8
  %thread_number = load ptr, ptr %thread_number_field, align 8
  %team_size = load ptr, ptr %team_size_field, align 8
  %me_int = call i32 %thread_number()
  %threads_int = call i32 %team_size()
  %me = sext i32 %me_int to i64
  %threads = sext i32 %threads_int to i64
  call void %entry(ptr %calls, i64 %me, i64 %threads)
  ret void
}

; The same for calls that wait for each other. If the team has fewer threads than calls, none is called, and their
; number becomes 0.
define void @run_in_team_concurrently(ptr %calls) {
entry:
  %team_size_field = getelementptr %team_calls, ptr %calls, i64 0, i32 2
  %count_field = getelementptr %team_calls, ptr %calls, i64 0, i32 4
  %team_size = load ptr, ptr %team_size_field, align 8
  %count = load atomic i64, ptr %count_field monotonic, align 8
  %threads_int = call i32 %team_size()
  %threads = sext i32 %threads_int to i64
  %is_too_small = icmp slt i64 %threads, %count
  br i1 %is_too_small, label %refuse, label %run

refuse:
  store atomic i64 0, ptr %count_field monotonic, align 8
  ret void

run:
  call void @run_in_team(ptr %calls)
  ret void
}
