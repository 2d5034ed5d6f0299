; Hand-over of work to the threads of a pool (mailbox.py, pool.py): the caller posts to mailboxes, a worker spins on its
; own mailbox for a while before it parks.

%mailbox = type {
  i64,        ; state: 0 parked, 1 spinning, 2 posted, 3 running
  ptr,        ; work: the function to call is its first field (shared_calls.ll)
  i64,        ; number: of the thread
  i64         ; threads: how many share the work
}

%posting = type {
  ptr,        ; mailbox
  i64         ; state_before: of the mailbox, when the work was posted
}

%posted_work = type {
  i64,            ; count: mailboxes
  ptr,            ; work
  ptr,            ; yield: i32 (), lets another thread run
  [0 x %posting]  ; postings: one for each mailbox
}

; Posts the work to every mailbox, runs the caller's share, then runs each share that no worker has begun and waits for
; the others. There is at least one mailbox.
define void @run_with_workers(ptr %posted, i64 %spin_limit) {
entry:
  %work_field = getelementptr %posted_work, ptr %posted, i64 0, i32 1
  %yield_field = getelementptr %posted_work, ptr %posted, i64 0, i32 2
  %postings = getelementptr %posted_work, ptr %posted, i64 0, i32 3
  %count = load i64, ptr %posted, align 8
  %work = load ptr, ptr %work_field, align 8
  %yield = load ptr, ptr %yield_field, align 8
  %function = load ptr, ptr %work, align 8
  %threads = add i64 %count, 1
  br label %post

post:
  %posted_count = phi i64 [ 0, %entry ], [ %number, %post ]
  %posting = phi ptr [ %postings, %entry ], [ %next_posting, %post ]
  %state_before_field = getelementptr %posting, ptr %posting, i64 0, i32 1
  %box = load ptr, ptr %posting, align 8
  %box_work = getelementptr %mailbox, ptr %box, i64 0, i32 1
  %box_number = getelementptr %mailbox, ptr %box, i64 0, i32 2
  %box_threads = getelementptr %mailbox, ptr %box, i64 0, i32 3
  %number = add i64 %posted_count, 1
  store ptr %work, ptr %box_work, align 8
  store i64 %number, ptr %box_number, align 8
  store i64 %threads, ptr %box_threads, align 8
  %state_before = atomicrmw xchg ptr %box, i64 2 seq_cst, align 8
  store i64 %state_before, ptr %state_before_field, align 8
  %next_posting = getelementptr %posting, ptr %posting, i64 1
  %is_posted = icmp sge i64 %number, %count
  br i1 %is_posted, label %run_own, label %post

run_own:
  call void %function(ptr %work, i64 0, i64 %threads)
  br label %collect

collect:
  %collected = phi i64 [ 0, %run_own ], [ %worker, %next ]
  %current = phi ptr [ %postings, %run_own ], [ %next_current, %next ]
  %worker = add i64 %collected, 1
  %worker_state_field = getelementptr %posting, ptr %current, i64 0, i32 1
  %worker_box = load ptr, ptr %current, align 8
  %worker_state = load i64, ptr %worker_state_field, align 8
  %change = cmpxchg ptr %worker_box, i64 2, i64 %worker_state seq_cst seq_cst
  %is_taken_back = extractvalue { i64, i1 } %change, 1
  br i1 %is_taken_back, label %run_instead, label %spin

run_instead:
  call void %function(ptr %work, i64 %worker, i64 %threads)
  br label %next

spin:
  %spins = phi i64 [ 0, %collect ], [ %next_spins, %again ]
  %state = load atomic i64, ptr %worker_box acquire, align 8
  %is_running = icmp eq i64 %state, 3
  br i1 %is_running, label %wait, label %next

wait:
  %next_spins = add i64 %spins, 1
  %is_long = icmp sge i64 %next_spins, %spin_limit
  br i1 %is_long, label %block, label %again

block:
  %ignored = call i32 %yield()
  br label %again

again:
  br label %spin

next:
  %next_current = getelementptr %posting, ptr %current, i64 1
  %is_collected = icmp sge i64 %worker, %count
  br i1 %is_collected, label %end, label %collect

end:
  ret void
}

; One thread runs the shares of all threads, in order.
define void @run_serially(ptr %work, i64 %threads) {
entry:
  %function = load ptr, ptr %work, align 8
  br label %run

run:
  %number = phi i64 [ 0, %entry ], [ %next, %run ]
  call void %function(ptr %work, i64 %number, i64 %threads)
  %next = add i64 %number, 1
  %is_left = icmp slt i64 %next, %threads
  br i1 %is_left, label %run, label %end

end:
  ret void
}

; Runs what is posted to a mailbox, until nothing was posted for `most_spins` reads; yields between two of them after
; `spin_limit`.
define void @serve_mailbox(ptr %box, ptr %yield, i64 %spin_limit, i64 %most_spins) {
entry:
  br label %begin

begin:
  ; A caller that took its work back has restored the state, which may be parked.
  %waking = cmpxchg ptr %box, i64 0, i64 1 seq_cst seq_cst
  br label %spin

spin:
  %spins = phi i64 [ 0, %begin ], [ %next_spins, %again ]
  %state = load atomic i64, ptr %box acquire, align 8
  %is_posted = icmp eq i64 %state, 2
  br i1 %is_posted, label %take, label %wait

wait:
  %next_spins = add i64 %spins, 1
  %is_over = icmp sge i64 %next_spins, %most_spins
  br i1 %is_over, label %park, label %consider

consider:
  %is_long = icmp sge i64 %next_spins, %spin_limit
  br i1 %is_long, label %block, label %again

block:
  %ignored = call i32 %yield()
  br label %again

again:
  br label %spin

take:
  ; The caller may take it back at this moment. The fields are read afterwards: none is posted until this work is done.
  %taking = cmpxchg ptr %box, i64 2, i64 3 seq_cst seq_cst
  %is_taken = extractvalue { i64, i1 } %taking, 1
  br i1 %is_taken, label %run, label %begin

run:
  %work_field = getelementptr %mailbox, ptr %box, i64 0, i32 1
  %number_field = getelementptr %mailbox, ptr %box, i64 0, i32 2
  %threads_field = getelementptr %mailbox, ptr %box, i64 0, i32 3
  %work = load ptr, ptr %work_field, align 8
  %number = load i64, ptr %number_field, align 8
  %threads = load i64, ptr %threads_field, align 8
  %function = load ptr, ptr %work, align 8
  call void %function(ptr %work, i64 %number, i64 %threads)
  store atomic i64 1, ptr %box release, align 8
  br label %begin

park:
  %change = cmpxchg ptr %box, i64 1, i64 0 seq_cst seq_cst
  %is_parked = extractvalue { i64, i1 } %change, 1
  br i1 %is_parked, label %end, label %begin

end:
  ret void
}
