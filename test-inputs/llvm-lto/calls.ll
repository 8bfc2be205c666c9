target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

; Two kernels call `shared`, which calls `below`; one calls `single`.
define ptx_kernel void @first(ptr %p) {
  %x = call i32 @shared(i32 1)
  %y = call i32 @single(i32 %x)
  store i32 %y, ptr %p, align 4
  ret void
}

define ptx_kernel void @second(ptr %p) {
  %x = call i32 @shared(i32 2)
  store i32 %x, ptr %p, align 4
  ret void
}

; Recursion, direct and through another.
define ptx_kernel void @third(ptr %p) {
  %x = call i32 @recursive(i32 3)
  store i32 %x, ptr %p, align 4
  ret void
}

define i32 @shared(i32 %x) {
  %y = call i32 @below(i32 %x)
  ret i32 %y
}

define i32 @below(i32 %x) {
  %y = add i32 %x, 1
  ret i32 %y
}

define i32 @single(i32 %x) {
  %y = mul i32 %x, 3
  ret i32 %y
}

define i32 @recursive(i32 %x) {
  %c = icmp eq i32 %x, 0
  br i1 %c, label %end, label %more

more:
  %d = sub i32 %x, 1
  %r = call i32 @recursive(i32 %d)
  %m = call i32 @mutual(i32 %r)
  ret i32 %m

end:
  ret i32 1
}

define i32 @mutual(i32 %x) {
  %y = call i32 @recursive(i32 %x)
  ret i32 %y
}
