; What other guarded calls go through: as guard-launch.ll, for functions with up to six parameters that are numbers or pointers. Whatever
; is in the registers is passed on.

source_filename = "warplink.guard"

declare i32 @.cuda.real(i64, i64, i64, i64, i64, i64)
declare hidden void @.cuda.guard_say(i32)

define hidden i32 @.cuda.guarded(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f) nounwind "frame-pointer"="all" {
begin:
  %error = call i32 @.cuda.real(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %say, label %done, !prof !0

say:
  call void @.cuda.guard_say(i32 %error)
  br label %done

done:
  ret i32 %error
}

!0 = !{!"branch_weights", i32 1, i32 1000000}
