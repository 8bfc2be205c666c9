; What a guarded launch goes through, once for each launch function that the host refers to, with names of its own: `.cuda.guarded` is what
; the host's references lead to, `.cuda.real` the runtime's function. The parameters are a kernel, two dim3, the arguments, a size and a
; stream; a dim3 (three 32-bit numbers by value) is two registers in both of our ABIs. With a frame pointer, so that debuggers and
; profilers find their way through.

source_filename = "warplink.guard"

declare i32 @.cuda.real(ptr, i64, i64, i64, i64, ptr, i64, ptr)
declare hidden void @.cuda.guard_say(i32)

define hidden i32 @.cuda.guarded(ptr %kernel, i64 %grid.xy, i64 %grid.z, i64 %block.xy, i64 %block.z, ptr %args, i64 %shared, ptr %stream) nounwind "frame-pointer"="all" {
begin:
  %error = call i32 @.cuda.real(ptr %kernel, i64 %grid.xy, i64 %grid.z, i64 %block.xy, i64 %block.z, ptr %args, i64 %shared, ptr %stream)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %say, label %done, !prof !0

say:
  call void @.cuda.guard_say(i32 %error)
  br label %done

done:
  ret i32 %error
}

!0 = !{!"branch_weights", i32 1, i32 1000000}
