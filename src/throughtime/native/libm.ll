; A function of one number over an array, for each type of element.

define void @map_float(ptr %function, ptr noalias %values, ptr noalias %result, i64 %count) {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %values, i64 %i
  %to = getelementptr float, ptr %result, i64 %i
  %x = load float, ptr %from
  %y = call float %function(float %x)
  store float %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

define void @map_double(ptr %function, ptr noalias %values, ptr noalias %result, i64 %count) {
entry:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr double, ptr %values, i64 %i
  %to = getelementptr double, ptr %result, i64 %i
  %x = load double, ptr %from
  %y = call double %function(double %x)
  store double %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}
