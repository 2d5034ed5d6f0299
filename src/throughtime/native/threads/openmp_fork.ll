; A parallel region by the entry points of LLVM's OpenMP runtime (openmp.py).

%source_location = type { i32, i32, i32, i32, ptr }

%kmpc = type {
  ptr,        ; global_thread_num: i32 (ptr), __kmpc_global_thread_num
  ptr,        ; push_num_threads: void (ptr, i32, i32), __kmpc_push_num_threads
  ptr         ; fork_call: void (ptr, i32, ptr, ...), __kmpc_fork_call
}

@location_text = private constant [23 x i8] c";throughtime;fork;0;0;;"
@location = private global %source_location { i32 0, i32 2, i32 0, i32 0, ptr @location_text }

define internal void @region(ptr %global_number, ptr %bound_number, ptr %function, ptr %argument) {
  call void %function(ptr %argument)
  ret void
}

define void @fork(ptr %kmpc, ptr %function, ptr %argument, i32 %threads) {
  %push_field = getelementptr %kmpc, ptr %kmpc, i64 0, i32 1
  %fork_field = getelementptr %kmpc, ptr %kmpc, i64 0, i32 2
  %global_thread_num = load ptr, ptr %kmpc, align 8
  %push_num_threads = load ptr, ptr %push_field, align 8
  %fork_call = load ptr, ptr %fork_field, align 8
  %me = call i32 %global_thread_num(ptr @location)
  call void %push_num_threads(ptr @location, i32 %me, i32 %threads)
  call void (ptr, i32, ptr, ...) %fork_call(ptr @location, i32 2, ptr @region, ptr %function, ptr %argument)
  ret void
}
